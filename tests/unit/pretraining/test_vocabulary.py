"""Fingerprints of the vocabulary that records were created with."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.cli import inspect
from albert_tf.data.files import match_files
from albert_tf.pretraining import beam
from albert_tf.pretraining.create_records import create_records
from albert_tf.pretraining.instances import InstanceSettings, SegmentSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.run import PretrainingSettings, run_pretraining
from albert_tf.pretraining.vocabulary import (
    check_vocabulary,
    stored_fingerprint,
    vocabulary_fingerprint,
    write_fingerprints,
)
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer
from tests.pretraining_run import PretrainingRun

SETTINGS = InstanceSettings(
    SegmentSettings(16), MaskingSettings(max_predictions_per_seq=3), dupe_factor=1
)


@pytest.fixture(scope="module")
def tokenizers(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """Two vocabularies; the order of the last two tokens differs."""
    lines = (golden / "tokenizer" / "vocab.txt").read_text().splitlines()
    other = tmp_path_factory.mktemp("other") / "other.txt"
    other.write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    return [load_tokenizer(vocab_file=str(p)) for p in (golden / "tokenizer/vocab.txt", other)]


def create(folder, tokenizer: Tokenizer, golden: Path, create=create_records) -> list[str]:
    """Two files of records in two folders."""
    outputs = [f"{folder}/a/a.tfrecord", f"{folder}/b/b.tfrecord"]
    text = [str(golden / "pretraining_data" / "corpus.txt")]
    create(text, outputs, tokenizer, SETTINGS, *([1] if create is create_records else []))
    return outputs


def create_with_beam(*arguments) -> None:
    beam.create_records("DirectRunner", (), *arguments)


@pytest.mark.parametrize(
    ("maker", "scheme"),
    [(create_records, ""), (create_records, "ram://"), (create_with_beam, "file://")],
)
def test_records_of_another_vocabulary_are_rejected(maker, scheme, tokenizers, tmp_path, golden):
    folder = f"{scheme}{tmp_path}"
    outputs = create(folder, tokenizers[0], golden, maker)
    assert match_files(f"{folder}/a/*,{folder}/b/*") == outputs
    check_vocabulary(outputs, tokenizers[0])
    check_vocabulary(outputs, None)
    for path in outputs:
        with pytest.raises(ValueError, match=path) as error:
            check_vocabulary([path], tokenizers[1])
        assert tokenizers[1].files[0] in str(error.value)


def test_records_of_two_vocabularies_are_rejected(tokenizers, tmp_path, golden):
    path, other = create(tmp_path, tokenizers[0], golden)
    write_fingerprints([other], tokenizers[1].tokens)
    for tokenizer, wrong in zip((*tokenizers, None), (other, path, other), strict=True):
        with pytest.raises(ValueError, match=f"^{wrong} "):
            check_vocabulary([path, other], tokenizer)


def test_fingerprints_of_other_content_are_ignored(tokenizers, tmp_path, golden):
    path, other = map(Path, create(tmp_path, tokenizers[0], golden))
    fingerprint = vocabulary_fingerprint(tokenizers[0].tokens)
    shutil.copytree(path.parent, tmp_path / "copied")
    (tmp_path / "link").symlink_to(path)
    for same in (path, tmp_path / "copied" / path.name, tmp_path / "link"):
        assert stored_fingerprint(str(same)) == fingerprint
    stored = path.parent / f".{path.name}.vocabulary"
    good = stored.read_bytes()
    for damaged in (b"", b"\xff", good[:70], b"0" + good[1:]):
        stored.write_bytes(damaged)
        assert stored_fingerprint(str(path)) is None
    stored.write_bytes(good)
    shutil.copyfile(other, path)  # with the name of the fingerprint, but other records
    check_vocabulary([str(path)], tokenizers[1])
    path.write_bytes(b"")
    write_fingerprints([str(path)], tokenizers[0].tokens)
    check_vocabulary([str(path)], tokenizers[1])


def test_a_fingerprint_that_cannot_be_written_is_a_warning(tokenizers, tmp_path, caplog):
    (tmp_path / "x").write_bytes(b"records")
    (tmp_path / ".x.vocabulary").mkdir()
    write_fingerprints([str(tmp_path / "x"), "/dev/null"], tokenizers[0].tokens)
    [message] = caplog.messages
    assert f"{tmp_path}/x" in message
    assert stored_fingerprint(str(tmp_path / "x")) is None


def test_runs_check_the_vocabulary(tokenizers, tmp_path):
    run = PretrainingRun(tmp_path)
    for path, action in ((run.files[1], {}), (run.eval_file, {"do_train": False, "do_eval": True})):
        write_fingerprints([str(path)], tokenizers[0].tokens)
        settings = {**run.flags(), "num_train_steps": 12, **action}
        with pytest.raises(ValueError, match=f"^{path} "):
            run_pretraining(PretrainingSettings(**settings))
        assert not run.output.exists()


def test_inspect_compares_the_vocabularies(tokenizers, tmp_path, golden, capsys):
    path, _ = create(tmp_path, tokenizers[0], golden)
    same, other = (tokenizer.files[0] for tokenizer in tokenizers)
    inspect.run([same, path, other])
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first == f"{path} was created with the vocabulary of {same}"
    assert second == f"{path} was created with a DIFFERENT vocabulary from {other}"
    tf.io.gfile.remove(f"{tmp_path}/a/.a.tfrecord.vocabulary")
    inspect.run([path, same])
    assert "not stored" in capsys.readouterr().out
