"""The commands that create vocabularies and records, in processes without TensorFlow."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from albert_tf.cli.flags import DRY_RUN_PASSED
from albert_tf.data.files import match_files
from albert_tf.data.tfrecord import RecordError, count_records
from albert_tf.pretraining.batching import check_record_files, check_sentence_pairs
from albert_tf.pretraining.instances import pretraining_feature_specs
from tests.programs import ROOT, command_line


@pytest.fixture(scope="module")
def no_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a module path on which importing TensorFlow fails."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "tensorflow.py").write_text("raise ImportError('TensorFlow is not needed here')\n")
    return str(folder)


def start(
    path: str, *options: str, program: Sequence[str] = ("create_pretraining_data.py",), **flags: Any
) -> subprocess.Popen[str]:
    command = [sys.executable, *program, *command_line(flags), *options]
    environment = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


def run(path: str, *options: str, code: int = 0, **flags: Any) -> tuple[str, str]:
    """Runs a command and returns its standard output and error."""
    process = start(path, *options, **flags)
    stdout, stderr = process.communicate()
    assert process.returncode == code, stderr
    return stdout, stderr


def kill_while_it_writes(folder: Path, path: str, flags: Mapping[str, Any]) -> None:
    """Kills the command while its files have temporary names."""
    process = start(path, **flags)
    while not list(folder.glob("tokens.tmp-*/*.pickle")):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.communicate()  # its workers, which have the same standard error, end as well
    assert len(list(folder.iterdir())) == 3


def test_sentence_piece_records(golden: Path, tmp_path: Path, no_tensorflow: str) -> None:
    outputs = [tmp_path / "records" / name for name in ("a.tfrecord", "b.tfrecord")]
    flags = {
        "input_file": golden / "pretraining_data" / "*.txt",
        "spm_model_file": golden / "tokenizer" / "small_1000.model",
        "vocab_file": tmp_path / "absent.vocab",  # as in scripts made for the original
        "max_seq_length": 64,
        "max_predictions_per_seq": 5,
        "dupe_factor": 2,
        "input_file_mode": "rb",
    }
    printed, _ = run(no_tensorflow, "--dry_run", output_file=outputs[0], num_workers=2, **flags)
    assert printed == f"{DRY_RUN_PASSED}\n"
    assert list(tmp_path.iterdir()) == []
    flags_of_both = {"output_file": ",".join(map(str, outputs)), "num_workers": 2, **flags}
    kill_while_it_writes(outputs[0].parent, no_tensorflow, flags_of_both)
    _, log = run(no_tensorflow, **flags_of_both)
    assert match_files(f"{outputs[0].parent}/*") == list(map(str, outputs))
    assert log.count(f"] there is no file {flags['vocab_file']};") == 1
    assert "asks for 10 predictions in 64 tokens, but" in log
    assert "documents=60" in log
    assert "creating: " in log
    files = list(map(str, outputs))
    check_record_files(files, pretraining_feature_specs(64, 5, 1000))
    assert count_records(files) > 550

    again = [tmp_path / "again" / output.name for output in outputs]
    run(no_tensorflow, output_file=",".join(map(str, again)), num_workers=1, **flags)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in outputs]


def test_beam_writes_the_same_files(golden: Path, tmp_path: Path, no_tensorflow: str) -> None:
    flags = {
        "input_file": golden / "pretraining_data" / "corpus.txt",
        "spm_model_file": golden / "tokenizer" / "small_1000.model",
        "max_seq_length": 64,
        "dupe_factor": 2,
    }
    made = {}
    for folder, options, beam in (
        ("local", (), {"num_workers": 1}),
        ("beam", ("--", "--direct_running_mode", "in_memory"), {"runner": "DirectRunner"}),
    ):
        output = tmp_path / folder / "records@3"
        _, log = run(no_tensorflow, *options, output_file=output, **flags, **beam)
        assert "documents=60" in log
        made[folder] = {path.name: path.read_bytes() for path in output.parent.iterdir()}
    assert made["beam"] == made["local"]
    assert match_files(f"{tmp_path}/beam/*") == [
        f"{tmp_path}/beam/records-0000{k}-of-00003" for k in range(3)
    ]


def test_sentence_losses_with_word_pieces(golden: Path, tmp_path: Path, no_tensorflow: str) -> None:
    flags = {
        "input_file": golden / "pretraining_data" / "corpus.txt",
        "vocab_file": golden / "tokenizer" / "vocab.txt",
        "max_seq_length": 96,
        "masked_lm_prob": 0.2,
        "dupe_factor": 1,
        "do_lower_case": False,
        "do_permutation": True,
        "random_seed": -4,
    }
    contents = {}
    for name, choice in {
        "original": {"random_next_sentence": True},
        "nsp": {"sentence_loss": "nsp"},
        "none": {"sentence_loss": "none", "random_next_sentence": False},
    }.items():
        _, log = run(no_tensorflow, output_file=tmp_path / name, **flags, **choice)
        assert f"sentence_loss={'nsp' if name == 'original' else name}" in log
        contents[name] = (tmp_path / name).read_bytes()
    assert contents["nsp"] == contents["original"]
    check_record_files([str(tmp_path / "none")], pretraining_feature_specs(96, 40))
    check_sentence_pairs([str(tmp_path / "nsp")], "sop")
    with pytest.raises(RecordError):
        check_sentence_pairs([str(tmp_path / "none")], "sop")


def test_a_missing_beam_is_an_error(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "apache_beam.py").write_text("raise ModuleNotFoundError('no apache_beam')\n")
    _, error = run(
        str(tmp_path),
        code=1,
        input_file=golden / "pretraining_data" / "corpus.txt",
        output_file=tmp_path / "records",
        runner="DirectRunner",
    )
    assert 'pip install "albert_tf[beam]"' in error


def test_vocabulary(golden: Path, tmp_path: Path, no_tensorflow: str) -> None:
    flags = {
        "program": ("-m", "albert_tf.cli.train_sentencepiece"),
        "input_file": golden / "pretraining_data" / "corpus.txt",
        "model_prefix": tmp_path / "new" / "vocab",
        "vocab_size": 200,
    }
    printed, _ = run(no_tensorflow, "--dry_run", **flags)
    assert printed == f"{DRY_RUN_PASSED}\n"
    assert list(tmp_path.iterdir()) == []
    run(no_tensorflow, **flags)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"vocab.model", "vocab.vocab"}
