"""A small pretraining run: its inputs, its command, and its output."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from tests.programs import CommandRun
from tests.small_model import ONE_BLOCK, small_config
from tests.small_records import LENGTH, PREDICTIONS, pretraining_columns, write_records

SCRIPT = "run_pretraining.py"
RECORDS = (7, 4, 9)  # of each file


class PretrainingRun(CommandRun):
    """Three record files, a model of one layer and a vocabulary, for `run_pretraining.py`."""

    script = SCRIPT

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(folder)
        self.config = small_config(**{**ONE_BLOCK, **config})
        (folder / "model").mkdir()
        self.config.to_json_file(str(folder / "model" / "albert_config.json"))
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        letters = [chr(ord("a") + n) for n in range(self.config.vocab_size - len(special))]
        (folder / "model" / "vocab.txt").write_text("\n".join([*special, *letters]) + "\n")
        self.files = [
            write_records(folder / f"train-{n}.tfrecord", pretraining_columns(count, seed=n))
            for n, count in enumerate(RECORDS)
        ]
        self.eval_file = write_records(folder / "eval.tfrecord", pretraining_columns(10, seed=9))

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for twelve steps with LAMB. XLA is off, because compilation is slow."""
        return {
            "input_file": self.folder / "train-*.tfrecord",
            "eval_input_file": self.eval_file,
            "output_dir": self.output,
            "albert_config_file": self.folder / "model" / "albert_config.json",
            "max_seq_length": LENGTH,
            "max_predictions_per_seq": PREDICTIONS,
            "train_batch_size": 6,
            "eval_batch_size": 4,
            "num_train_steps": 12,
            "num_warmup_steps": 3,
            "save_checkpoints_steps": 5,
            "log_steps": 4,
            "shuffle_buffer_size": 8,
            "xla": False,
            **changes,
        }

    def fresh_checkpoint(self, folder: Path, **config: Any) -> str:
        """Writes random weights without moments as step 3; returns the prefix."""
        model = AlbertForPretraining(self.config.replace(**config))
        prefix = str(folder / "model.ckpt-3")
        write_checkpoint(prefix, original_names(model), global_step=3)
        return prefix

    def results(self) -> dict[str, float]:
        """Returns the contents of eval_results.txt."""
        lines = (self.output / "eval_results.txt").read_text().splitlines()
        return {key: float(value) for key, value in (line.split(" = ") for line in lines)}

    def files_of(self, pattern: str) -> list[str]:
        return sorted(path.name for path in self.output.glob(pattern))


def read_checkpoint(prefix: str | Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a checkpoint by name."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_bits(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Checks that two checkpoints have the same names and bit-equal values."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype, name
        assert actual[name].tobytes() == value.tobytes(), name
