"""Shared parts of the small fine-tuning runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import albert_tf
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.finetuning.job import Job, RunContext
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.settings import resolve
from albert_tf.training.strategies import create_strategy
from albert_tf.training.training_directory import TrainingDirectory
from tests.programs import CommandRun
from tests.small_model import ONE_BLOCK, small_config


def run_context(settings, config, tokenizer, task_name, trained=None):
    """Returns the context of a job without calling `prepare`."""
    settings = resolve(settings)
    return RunContext(
        settings=settings,
        strategy=create_strategy("one_device"),
        tokenizer=tokenizer,
        initial=None,
        output=TrainingDirectory(settings.output_dir),
        model_directory=ModelDirectory(settings.output_dir, config, tokenizer),
        task_name=task_name,
        trained=trained,
        trained_in=settings.output_dir,
    )


class FineTuningRun(CommandRun):
    """A directory with a model of one layer and the tokenizer of `golden`, and a command."""

    job: type[Job]
    function: ClassVar[Callable[..., albert_tf.JobResult]]
    settings: type
    files = "train_file", "dev_file"  # settings
    actions = "do_train", "do_eval"

    def __init__(self, folder: Path, golden: Path, **config: Any) -> None:
        super().__init__(folder)
        self.golden = golden
        sizes = {"vocab_size": 1000, "max_position_embeddings": 24, **ONE_BLOCK}
        self.config = small_config(**{**sizes, **config})
        self.config_file = folder / "albert_config.json"
        self.config.to_json_file(str(self.config_file))

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for a short training run. Subclasses add data."""
        return {
            "output_dir": self.output,
            "albert_config_file": self.config_file,
            "spm_model_file": self.golden / "tokenizer" / "small_1000.model",
            "max_seq_length": self.config.max_position_embeddings,
            "train_batch_size": 5,
            "learning_rate": 1e-3,
            "save_checkpoints_steps": 2,
            "log_steps": 1,
            **changes,
        }

    def given(self, **changes: Any) -> Any:
        """Returns the settings for the function, with training and evaluation by default."""
        return self.settings(**{**self.flags(**dict.fromkeys(self.actions, True)), **changes})

    def here(self, on_log: Any = None, **changes: Any) -> albert_tf.JobResult:
        """Runs the command in this process."""
        return type(self).function(self.given(**changes), on_log)

    def pretrained(self) -> str:
        """Writes a checkpoint of an encoder with the heads of pretraining; returns the prefix."""
        prefix = str(self.folder / "pretrained.ckpt")
        write_checkpoint(prefix, original_names(AlbertForPretraining(self.config)), global_step=3)
        return prefix

    def written(self, *names: str) -> dict[str, bytes]:
        """Returns the contents of files in the output directory."""
        return {name: (self.output / name).read_bytes() for name in names}
