"""Settings of `run_ablations`. Does not import TensorFlow."""

from collections.abc import Sequence
from dataclasses import dataclass

from albert_tf.data.errors import UserError
from albert_tf.data.files import match_files
from albert_tf.pretraining.instances import NONE, NSP, SOP
from albert_tf.settings import Settings, dry_run_setting, required, setting

# Title of each comparison, and the configuration fields that take the compared value.
COMPARISONS = {
    "embedding_size": ("embedding size E", ["embedding_size"]),
    "sharing": ("parameter sharing", ["parameter_sharing"]),
    "sentence_loss": ("sentence loss", []),
    "dropout": ("dropout", ["hidden_dropout_prob", "attention_probs_dropout_prob"]),
    "depth": ("layers L", ["num_hidden_layers"]),
    "width": ("hidden size H", ["hidden_size"]),
}


@dataclass(frozen=True, kw_only=True)
class AblationSettings(Settings):
    """Settings of a study.

    Lists of numbers contain strings. `training_flags` are flags of `run_pretraining` for all runs.
    """

    output_dir: str = required("Output")("""
        Directory for the results, with a subdirectory for each run. Completed runs in it are not
        repeated, and interrupted runs are resumed.""")
    albert_config_file: str = required("Model")("""
        Configuration (albert_config.json) of the base model.""")
    input_file: str = required("Data")("""
        Records to train on, created with --sentence_loss=sop, the default: comma-separated files
        or globs.""")
    eval_input_file: str = required("Data")("""
        Held-out records to evaluate on: comma-separated files or globs.""")
    num_train_steps: int = required("Training", at_least=1)("""
        Training steps of every run.""")
    nsp_input_file: str | None = setting(None, "Data")("""
        Records created with --sentence_loss=nsp. Default: this loss is not compared.""")
    nsp_eval_input_file: str | None = setting(None, "Data")("""
        Held-out records created with --sentence_loss=nsp; required with --nsp_input_file.""")
    none_input_file: str | None = setting(None, "Data")("""
        Records created with --sentence_loss=none. Default: the model of this comparison uses only
        the masked tokens of --input_file.""")
    none_eval_input_file: str | None = setting(None, "Data")("""
        Held-out records created with --sentence_loss=none; required with --none_input_file.""")
    comparisons: Sequence[str] = setting(tuple(COMPARISONS), "Actions")(
        "Comparisons to run. Default: all."
    )
    embedding_sizes: Sequence[str] = setting((), "Actions")("""
        Embedding sizes. Default: E/2, 2E and H of the base model.""")
    depths: Sequence[str] = setting((), "Actions")("""
        Numbers of layers. Default: 1, L/2 and 2L of the base model.""")
    widths: Sequence[str] = setting((), "Actions")("""
        Hidden sizes. Default: H/2 and 2H of the base model.""")
    seeds: Sequence[str] = setting(("12345",), "Actions")("""
        Seeds. Every model is trained with each of them.""")
    base_seeds: Sequence[str] = setting((), "Actions")("""
        Additional seeds of the base model. The spread of its scores estimates the noise in the
        table. Default: none.""")
    dry_run: bool = dry_run_setting()
    training_flags: Sequence[str] = ()

    def numbers(self, name: str) -> list[int]:
        """Returns the distinct numbers in a list. Raises `ValueError` for other strings."""
        texts = [text.strip() for text in getattr(self, name)]
        if wrong := [text for text in texts if not text.isdecimal()]:
            raise UserError(f"`{name}` must be whole numbers. Received: {wrong[0]!r:.80}")
        return list(dict.fromkeys(map(int, texts)))

    def records(self) -> dict[str, list[list[str]]]:
        """Returns the training files and the evaluation files for each sentence loss."""
        found = {}
        for loss, prefix in ((SOP, ""), (NSP, "nsp_"), (NONE, "none_")):
            names = f"{prefix}input_file", f"{prefix}eval_input_file"
            patterns = [getattr(self, name) for name in names]
            if any(patterns):
                if not all(patterns):
                    raise UserError(f"`{names[0]}` and `{names[1]}` must be set together.")
                found[loss] = [match_files(pattern) for pattern in patterns]
        return {NONE: found[SOP], **found}
