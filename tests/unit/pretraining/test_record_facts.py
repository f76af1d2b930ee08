"""Record files that do not belong together are rejected, by their names and stored facts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints.facts import ANY
from albert_tf.cli import inspect
from albert_tf.data.files import match_files
from albert_tf.data.tfrecord import RecordError, frame_records
from albert_tf.pretraining.create_records import create_records
from albert_tf.pretraining.instances import InstanceSettings, SegmentSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.record_facts import (
    check_shards,
    common_facts,
    digest,
    stored_facts,
    write_facts,
)
from albert_tf.pretraining.run import run_pretraining
from albert_tf.pretraining.settings import PretrainingSettings
from albert_tf.settings import Settings
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.pretraining_run import PretrainingRun
from tests.small_training import skip_steps

SETTINGS = InstanceSettings(
    SegmentSettings(16), MaskingSettings(max_predictions_per_seq=3), dupe_factor=1
)


@pytest.fixture(scope="module")
def tokenizers(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """Two vocabularies; the order of the last two tokens differs."""
    lines = (golden / "tokenizer" / "vocab.txt").read_text().splitlines()
    other = tmp_path_factory.mktemp("other") / "other.txt"
    other.write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    files = golden / "tokenizer" / "vocab.txt", other
    return [tokenizer_from_files(vocab_file=str(file)) for file in files]


def create(folder, tokenizer: Tokenizer, golden: Path) -> list[str]:
    """Two files of records in two folders."""
    outputs = [f"{folder}/a/a.tfrecord", f"{folder}/b/b.tfrecord"]
    text = [str(golden / "pretraining_data" / "corpus.txt")]
    create_records(text, outputs, tokenizer, SETTINGS, 1)
    return outputs


@pytest.mark.parametrize("scheme", ["", "ram://"])
def test_records_of_another_vocabulary_are_rejected(scheme, tokenizers, tmp_path, golden):
    """test_beam.py compares the files, including the facts, with files of Beam."""
    folder = f"{scheme}{tmp_path}"
    outputs = create(folder, tokenizers[0], golden)
    assert match_files(f"{folder}/a/*,{folder}/b/*") == outputs
    known, other = ({"words": {"vocabulary": one.fingerprint}} for one in tokenizers)
    common_facts(outputs, known)
    for path in outputs:
        with pytest.raises(RecordError, match=f"^vocabulary is .* in words, but .* in {path}: "):
            common_facts([path], other)
    write_facts(outputs[1:], tokenizers[1], "sop")
    with pytest.raises(RecordError, match=f" in {outputs[0]}, .* in {outputs[1]}: "):
        common_facts(outputs)


def test_fingerprints_of_other_content_are_ignored(tokenizers, tmp_path, golden):
    path, other = map(Path, create(tmp_path, tokenizers[0], golden))
    fingerprint = tokenizers[0].fingerprint
    shutil.copytree(path.parent, tmp_path / "copied")
    (tmp_path / "link").symlink_to(path)
    for same in (path, tmp_path / "copied" / path.name, tmp_path / "link"):
        assert stored_facts(str(same))["vocabulary"] == fingerprint
    stored = path.parent / f".{path.name}.vocabulary"
    good = stored.read_bytes()
    for damaged in (b"", b"\xff", good[:70], b"0" + good[1:]):
        stored.write_bytes(damaged)
        assert stored_facts(str(path)) == {}
    stored.write_bytes(good)
    shutil.copyfile(other, path)  # with the name of the fingerprint, but other records
    assert stored_facts(str(path)) == {}
    path.write_bytes(b"")
    write_facts([str(path)], tokenizers[0], "sop")
    assert stored_facts(str(path)) == {}


def test_a_fingerprint_that_cannot_be_written_is_a_warning(tokenizers, tmp_path, caplog):
    (tmp_path / "x").write_bytes(b"records")
    (tmp_path / ".x.vocabulary").mkdir()
    write_facts([str(tmp_path / "x"), "/dev/null"], tokenizers[0], "sop")
    [message] = caplog.messages
    assert f"{tmp_path}/x" in message
    assert stored_facts(str(tmp_path / "x")) == {}


def test_runs_check_the_vocabulary(tokenizers, tmp_path):
    run = PretrainingRun(tmp_path)
    for path, action in ((run.files[1], {}), (run.eval_file, {"do_train": False, "do_eval": True})):
        write_facts([str(path)], tokenizers[0], "sop")
        settings = {**run.flags(), "num_train_steps": 12, **action}
        with pytest.raises(RecordError, match=f" in {path}: "):
            run_pretraining(PretrainingSettings(**settings))
        assert not run.output.exists()


def test_inspect_compares_the_vocabularies(tokenizers, tmp_path, golden, capsys):
    path, _ = create(tmp_path, tokenizers[0], golden)
    same, other = (tokenizer.files[0] for tokenizer in tokenizers)
    inspect.run(Settings(), [same, path, other])
    lines = capsys.readouterr().out.splitlines()
    first, second = (line for line in lines if " was created with " in line)
    assert first == f"{path} was created with the vocabulary of {same}"
    assert second == f"{path} was created with a DIFFERENT vocabulary from {other}"
    tf.io.gfile.remove(f"{tmp_path}/a/.a.tfrecord.vocabulary")
    inspect.run(Settings(), [path, same])
    assert "not stored" in capsys.readouterr().out


def facts_of(path: Path, *facts: object) -> str:
    """Writes a record and its facts."""
    path.write_bytes(b"".join(frame_records([path.name.encode()])))
    text = " ".join(map(str, [digest(str(path), 2), *facts]))
    (path.parent / f".{path.name}.vocabulary").write_text(f"{text}\n")
    return str(path)


def test_facts_of_several_files(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    stored = ("cased", False, "sop"), ("nsp", False, "nsp"), ("accents", True, "sop keep_accents")
    cased, nsp, accents = (facts_of(tmp_path / n, "a" * 64, *facts) for n, *facts in stored)
    for name in ("first", "second"):  # as the original writes them
        (tmp_path / name).write_bytes(b"".join(frame_records([b"record"])))
    facts = {"vocabulary": "a" * 64, "do_lower_case": False, "sentence_loss": "sop"}
    facts["keep_accents"] = False
    assert common_facts([cased]) == facts
    rules = {"do_lower_case": True, "keep_accents": True}
    assert common_facts([accents]) == {**facts, **rules}
    assert not caplog.messages
    assert common_facts([str(tmp_path / "first"), cased, str(tmp_path / "second")]) == facts
    assert caplog.messages[0].endswith("to match: 'first', 'second'")
    message = f"^do_lower_case is False in {cased}, but True in {accents}; keep_accents is "
    with pytest.raises(RecordError, match=message):
        common_facts([cased, accents])
    assert common_facts([cased, nsp], {"this run": {"sentence_loss": ANY}})["vocabulary"]


def test_the_model_gets_the_facts_of_its_records(tokenizers, tmp_path, golden, monkeypatch):
    """The later steps read `do_lower_case` in the configuration of the model."""
    skip_steps(monkeypatch)
    run = PretrainingRun(tmp_path, vocab_size=tokenizers[0].vocab_size, max_position_embeddings=16)
    cased = tokenizer_from_files(vocab_file=tokenizers[0].files[0], do_lower_case=False)
    text, files = [f"{golden}/pretraining_data/corpus.txt"], {}
    for loss, tokenizer in (("nsp", cased), ("sop", tokenizers[0])):
        segments = SegmentSettings(16, sentence_loss=loss)
        files[loss] = f"{tmp_path}/{loss}.tfrecord"
        settings = replace(SETTINGS, segments=segments)
        create_records(text, [files[loss]], tokenizer, settings, 1)
    common = {"max_seq_length": 16, "num_train_steps": 1, "num_warmup_steps": 0}
    flags = {**run.flags(**common, vocab_file=cased.files[0]), "eval_input_file": None}

    def train(**changes):
        return run_pretraining(PretrainingSettings(**{**flags, **changes}))

    train(input_file=files["nsp"])
    config = json.loads((run.output / "albert_config.json").read_text())
    assert config["do_lower_case"] is False
    settings = json.loads((run.output / "run_config.json").read_text())["config"]
    assert settings["sentence_loss"] == "nsp"
    assert not albert_tf.load_tokenizer(run.output).do_lower_case
    fresh = {"output_dir": tmp_path / "other"}
    for changes, message in (
        ({"input_file": files["nsp"], "sentence_loss": "sop"}, "'sop' in this run, but 'nsp' in "),
        ({"input_file": files["sop"], "init_checkpoint": run.output}, "case is False in .*config"),
        ({"input_file": f"{files['nsp']},{files['sop']}"}, "sentence_loss is"),
        ({"input_file": files["nsp"], "eval_input_file": files["sop"], "do_eval": True}, "nsp"),
    ):
        if "init_checkpoint" in changes:
            changes["albert_config_file"] = None
        with pytest.raises(ValueError, match=message):
            train(**fresh, **changes)
        assert not (tmp_path / "other").exists()


def shards(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_bytes(b"x")
    return [f"{folder}/{name}" for name in names]


def test_sets_of_shards_must_be_complete(tmp_path, caplog):
    four = shards(tmp_path, *(f"a-{n:05d}-of-00004" for n in range(4)))
    two = shards(tmp_path, "a-00000-of-00002", "a-00001-of-00002")
    other = shards(tmp_path, "b-00000-of-00001.tfrecord", "c.tfrecord")
    other += shards(tmp_path, "d-00001-of-00002", "d-00002-of-00002")  # counted from 1
    check_shards([*other, *four], two[:0])
    check_shards(four[:3], four[3:])  # a part of a set is used for the evaluation
    assert not caplog.messages
    check_shards(four[1:])
    assert caplog.messages[0].endswith("without 'a-00000-of-00004'")
    with pytest.raises(RecordError, match=r"a-\*-of-00004 and .*a-\*-of-00002"):
        check_shards([*four, *two])
    Path(four[2]).unlink()
    with pytest.raises(RecordError, match=r"1 of the 4 files .*: 'a-00002-of-00004'\."):
        check_shards([*four[:2], four[3]])
    (tmp_path / "link").symlink_to(four[0])
    for name in (f"{tmp_path}/./a-00000-of-00004", f"{tmp_path}/link"):
        with pytest.raises(RecordError, match=f"{name} and {four[0]} are the same file"):
            check_shards([four[0], name])


def test_runs_check_the_shards(tmp_path):
    run = PretrainingRun(tmp_path)
    for number, path in enumerate(run.files):
        path.rename(tmp_path / f"train-{number}-of-3-{number:05d}-of-00004.tfrecord")
    with pytest.raises(RecordError, match="00003-of-00004"):
        run_pretraining(PretrainingSettings(**run.flags()))
    assert not run.output.exists()
