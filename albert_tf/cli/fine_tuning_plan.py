"""The plan of a fine-tuning, as `--dry_run` prints it: what the three commands share."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import keras
from absl import flags

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.original import original_names
from albert_tf.data.files import file_exists
from albert_tf.export.saved_model import TEXT_FOLDER
from albert_tf.fine_tuning import flow
from albert_tf.fine_tuning.plan import evaluation_files, training_files
from albert_tf.inspection.files import tokenizer_facts
from albert_tf.model_files.directory import CONFIG_FILE, ModelDirectory
from albert_tf.model_files.trained_task import LABELS_FILE
from albert_tf.run_log import device_names
from albert_tf.text_layout import Block
from albert_tf.training.plan import TrainingPlan
from albert_tf.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class ToTrain:
    """A training that is to be planned.

    Attributes:
        trainer: made, and not yet initialized.
        start: where a fresh run starts.
        best_metric: name of the score the best checkpoint is chosen by.
        is_evaluated: whether every checkpoint is evaluated.
        evaluated: what they are evaluated on, in words.
        num_examples: to train on.
        sequences_an_example: how many the model reads for one of them.
    """

    trainer: Trainer
    start: flow.Start
    best_metric: str
    is_evaluated: bool
    evaluated: str
    num_examples: int
    sequences_an_example: int = 1

    def blocks(self, max_seq_length: int) -> dict[str, Block]:
        """Begins as the real run does, without a step, and says what would come."""
        best = flow.begin(self.trainer, self.start, self.best_metric)
        plan = TrainingPlan(
            self.trainer,
            self.num_examples,
            max_seq_length=max_seq_length,
            sequences_an_example=self.sequences_an_example,
            keeps_best=self.is_evaluated,
        )
        blocks = plan.blocks()
        if self.is_evaluated:
            blocks["Evaluation"] = {
                "on": self.evaluated,
                "when": f"at each of the {len(plan.checkpoint_steps)} checkpoints",
                **plan.missed_evaluation(best.last_step),
                "best checkpoint by": self.best_metric,
            }
            if best.step >= 0:
                blocks["Evaluation"]["best so far"] = f"{best.value:g}, of step {best.step:,}"
        return blocks


def finished_blocks(
    model: keras.Model, to_evaluate: Sequence[str], evaluated: str
) -> dict[str, Block]:
    """Checks and names what is evaluated or applied without training.

    Args:
        model: takes the weights.
        to_evaluate: prefixes of checkpoints; none where nothing is evaluated.
        evaluated: what they are evaluated on, in words.

    Raises:
        ValueError: a checkpoint is damaged, or does not hold the whole model.
    """
    flow.check_checkpoints(model, to_evaluate)
    variables = original_names(model).values()
    blocks: dict[str, Block] = {
        "Model": {
            "parameters": sum(int(v.value.shape.num_elements()) for v in variables),
            "devices": ", ".join(device_names()),
        }
    }
    if to_evaluate:
        names = {f"checkpoint {n}": prefix for n, prefix in enumerate(to_evaluate, start=1)}
        blocks["Evaluation"] = {"on": evaluated, **names}
    return blocks


def tokenizer_block(source: ModelSource, directory: ModelDirectory) -> Block:
    """The tokenizer and the configuration it fits."""
    return {
        "configuration": source.config_file or "",
        **tokenizer_facts(source.required_tokenizer),
        "lower-cases": source.required_tokenizer.do_lower_case,
        "vocab_size": directory.config.vocab_size,
    }


def applied_text(
    values: flags.FlagValues, model: keras.Model, evaluated: Sequence[str] = ()
) -> str:
    """Says which checkpoint predicts or is exported, and loads it if it is there already.

    Args:
        values: with --checkpoint.
        model: takes the weights.
        evaluated: prefixes of the checkpoints that are evaluated before.

    Raises:
        ValueError: there is none, or it does not hold the whole model.
    """
    choice = values.checkpoint
    if values.do_train or (evaluated and choice in (None, "all", "best")):
        return "the best" if choice in (None, "all") else choice
    prefix = flow.chosen_checkpoint(values.output_dir, choice, values.init_checkpoint)
    flow.check_checkpoints(model, [prefix])
    return prefix


def output_names(
    values: flags.FlagValues, directory: ModelDirectory, *, is_evaluated: bool, keeps_best: bool
) -> list[str]:
    """Names what gets into --output_dir beside predictions.

    Args:
        values: the flags.
        directory: --output_dir.
        is_evaluated: whether checkpoints are evaluated.
        keeps_best: whether the best one is kept.
    """
    if values.do_train:
        return [*directory.file_names(), *training_files(is_evaluated)]
    names = []
    if is_evaluated or values.do_predict:
        if not file_exists(os.path.join(directory.path, CONFIG_FILE)):
            names += directory.file_names()
        if not file_exists(os.path.join(directory.path, LABELS_FILE)):
            names.append(LABELS_FILE)
    return [*names, *(evaluation_files(keeps_best=keeps_best) if is_evaluated else [])]


def files_block(
    values: flags.FlagValues,
    names: Sequence[str],
    elsewhere: Mapping[str, str | None],
    export_folder: str = "",
) -> Block:
    """What is written where.

    Args:
        values: with --output_dir and --export_dir.
        names: of what gets into --output_dir.
        elsewhere: paths by their flags; None is not wanted.
        export_folder: of --export_dir, where models of token ids lie.
    """
    block: Block = {f"--{flag}": path for flag, path in elsewhere.items() if path}
    if values.export_dir:
        folders = [export_folder, *([TEXT_FOLDER] if values.export_text_model else [])]
        paths = (os.path.join(values.export_dir, folder, "<seconds>/") for folder in folders)
        block["--export_dir"] = ", ".join(paths)
    if names:
        block = {f"in {values.output_dir}": ", ".join(dict.fromkeys(names)), **block}
    return block
