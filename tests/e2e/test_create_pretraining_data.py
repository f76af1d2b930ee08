"""The commands that create vocabularies and records, in processes without TensorFlow."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from albert_tf.cli import create_pretraining_data
from albert_tf.cli.flags import DRY_RUN_PASSED
from albert_tf.data.files import match_files
from albert_tf.data.tfrecord import RecordError, count_records
from albert_tf.pretraining.instances import pretraining_feature_specs
from albert_tf.pretraining.record_checks import check_record_files, check_sentence_pairs
from tests.programs import ROOT, TIMEOUT, command_line, unwrapped
from tests.run_in_process import run_here


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
    return stdout, unwrapped(stderr)


@pytest.fixture
def corpus(golden: Path) -> dict[str, Any]:
    """Returns flags for a small corpus and its tokenizer."""
    return {
        "input_file": golden / "pretraining_data" / "corpus.txt",
        "spm_model_file": golden / "tokenizer" / "small_1000.model",
        "max_seq_length": 64,
        "dupe_factor": 2,
    }


def test_records_of_two_files(corpus: dict, tmp_path: Path, no_tensorflow: str) -> None:
    """A dry run, a run that is killed while its files have temporary names, and a whole run."""
    outputs = [str(tmp_path / "records" / name) for name in ("a.tfrecord", "b.tfrecord")]
    flags = {
        **corpus,
        "output_file": ",".join(outputs),
        "vocab_file": tmp_path / "absent.vocab",  # as in scripts made for the original
        "max_predictions_per_seq": 5,
        "input_file_mode": "rb",
        "num_workers": 2,
    }
    printed, _ = run(no_tensorflow, "--dry_run", **flags)
    assert printed == f"{DRY_RUN_PASSED}\n"
    assert list(tmp_path.iterdir()) == []
    process = start(no_tensorflow, **{**flags, "dupe_factor": 99})  # is killed early
    while not list(tmp_path.glob("records/.tokens.tmp-*/*.pickle")):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.communicate()  # its workers, which have the same standard error, end as well
    assert len(list((tmp_path / "records").iterdir())) == 3
    _, log = run(no_tensorflow, **flags)
    assert match_files(f"{tmp_path}/records/*") == outputs
    assert log.count(f"warning: The file {flags['vocab_file']} does not exist") == 1
    assert "asks for 10 predictions in 64 tokens, but" in log
    assert "documents=60" in log
    assert "creating: " in log
    check_record_files(outputs, pretraining_feature_specs(64, 5, 1000))
    assert count_records(outputs) > 500


@pytest.mark.parametrize("moment", ["start", "work"])
def test_a_killed_worker_process_ends_the_command(
    corpus: dict, tmp_path: Path, no_tensorflow: str, moment: str
) -> None:
    output = tmp_path / "records"
    output.write_text("before")
    # A pipe does not hold these arguments.
    texts = ",".join([str(corpus["input_file"])] * (100_000 // len(str(corpus["input_file"]))))
    flags = {**corpus, "input_file": texts, "output_file": output, "dupe_factor": 9}
    process = start(no_tensorflow, **flags, num_workers=2)
    while not (workers := worker_ids(process.pid)) or (
        moment == "work" and not list(tmp_path.glob(".tokens.tmp-*/*"))
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    os.kill(workers[-1], signal.SIGKILL)
    _, log = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert "Traceback" not in log
    assert log.count("error:") == 1
    assert log.endswith("use a smaller --num_workers.\n")
    assert output.read_text() == "before"
    assert list(tmp_path.iterdir()) == [output]


def worker_ids(process_id: int) -> list[int]:
    """Returns the ids of the worker processes of a process."""
    (children,) = Path(f"/proc/{process_id}/task/{process_id}").glob("children")
    return [
        int(child)
        for child in children.read_text().split()
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.slow
def test_beam_writes_the_same_files(corpus: dict, tmp_path: Path, no_tensorflow: str) -> None:
    made = {}
    for folder, options, beam in (
        ("local", (), {"num_workers": 1}),
        ("beam", ("--", "--direct_running_mode", "in_memory"), {"runner": "DirectRunner"}),
    ):
        output = tmp_path / folder / "records@3"
        _, log = run(no_tensorflow, *options, output_file=output, **corpus, **beam)
        assert "documents=60" in log
        made[folder] = {path.name: path.read_bytes() for path in output.parent.iterdir()}
    assert made["beam"] == made["local"]
    names = [f"{tmp_path}/beam/records-0000{k}-of-00003" for k in range(3)]
    assert match_files(f"{tmp_path}/beam/*") == names


def test_sentence_losses_with_word_pieces(
    corpus: dict, golden: Path, tmp_path: Path, no_tensorflow: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="absl")
    flags = {
        **corpus,
        "spm_model_file": None,
        "vocab_file": golden / "tokenizer" / "vocab.txt",
        "masked_lm_prob": 0.2,
        "do_lower_case": False,
        "do_permutation": True,
        "random_seed": -4,
        "dupe_factor": 1,
        "num_workers": 1,
    }
    flags["output_file"] = tmp_path / "original"
    _, log = run(no_tensorflow, **flags, random_next_sentence=True)
    assert "sentence_loss=nsp" in log
    for name in ("nsp", "none"):
        flags |= {"output_file": tmp_path / name, "sentence_loss": name}
        run_here(create_pretraining_data, flags, [])
        assert f"sentence_loss={name}" in caplog.text
    assert (tmp_path / "nsp").read_bytes() == (tmp_path / "original").read_bytes()
    check_sentence_pairs([str(tmp_path / "nsp")], "sop")
    with pytest.raises(RecordError):
        check_sentence_pairs([str(tmp_path / "none")], "sop")


def test_a_missing_beam_is_an_error(corpus: dict, tmp_path: Path) -> None:
    (tmp_path / "apache_beam.py").write_text("raise ModuleNotFoundError('no apache_beam')\n")
    output = tmp_path / "records"
    _, error = run(str(tmp_path), code=1, **corpus, output_file=output, runner="DirectRunner")
    assert 'pip install "albert_tf[beam]"' in error


def test_vocabulary(corpus: dict, tmp_path: Path, no_tensorflow: str) -> None:
    flags = {
        "program": ("-m", "albert_tf.cli.train_sentencepiece"),
        "input_file": corpus["input_file"],
        "model_prefix": tmp_path / "new" / "vocab",
        "vocab_size": 200,
    }
    printed, _ = run(no_tensorflow, "--dry_run", **flags)
    assert printed == f"{DRY_RUN_PASSED}\n"
    assert list(tmp_path.iterdir()) == []
    run(no_tensorflow, **flags)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"vocab.model", "vocab.vocab"}
