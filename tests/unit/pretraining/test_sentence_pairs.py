from pathlib import Path

import numpy as np
import pytest

from albert_tf.data.tfrecord import RecordError, frame_records
from albert_tf.pretraining.batching import check_sentence_pairs
from tests.small_records import pretraining_columns, write_records


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Pairs, single runs, and no record at all."""
    columns = pretraining_columns(3, seed=1)
    single = {**columns, "segment_ids": np.zeros_like(columns["segment_ids"])}
    nothing = {name: values[:0] for name, values in columns.items()}
    return [
        str(write_records(tmp_path / name, columns))
        for name, columns in (("pairs", columns), ("single", single), ("nothing", nothing))
    ]


@pytest.mark.parametrize("loss", ["sop", "nsp"])
def test_a_loss_of_pairs_refuses_single_runs(files: list[str], loss: str) -> None:
    pairs, single, nothing = files
    check_sentence_pairs([pairs, nothing], loss)
    with pytest.raises(RecordError, match=f"^{single} .*--sentence_loss={loss}"):
        check_sentence_pairs(files, loss)
    check_sentence_pairs(files, "none")


@pytest.mark.parametrize("payload", [b"", b"\xff" * 40])
def test_a_first_record_that_cannot_be_read_is_named(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"".join(frame_records([payload])))
    with pytest.raises(RecordError, match="bad, record 1"):
        check_sentence_pairs([str(path)], "sop")
