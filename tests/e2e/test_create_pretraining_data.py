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
from albert_tf.data.tfrecord import RecordError, count_records, read_records
from albert_tf.pretraining.batching import check_record_files, check_sentence_pairs
from albert_tf.pretraining.instances import pretraining_feature_specs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def no_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a module path on which importing TensorFlow fails."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "tensorflow.py").write_text("raise ImportError('TensorFlow is not needed here')\n")
    return str(folder)


def start(
    path: str,
    *options: str,
    program: Sequence[str] = ("create_pretraining_data.py",),
    **flags: object,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            *program,
            *(f"--{name}={value}" if name else "--" for name, value in flags.items()),
            *options,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(path: str, *options: str, **flags: Any) -> subprocess.CompletedProcess[str]:
    process = start(path, *options, **flags)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def kill_while_it_writes(folder: Path, path: str, flags: Mapping[str, Any]) -> None:
    """Kills the command while its files have temporary names."""
    process = start(path, **flags)
    while not list(folder.glob("tokens.tmp-*/*.npz")):
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
    checked = run(no_tensorflow, "--dry_run", output_file=outputs[0], num_workers=2, **flags)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout == f"{DRY_RUN_PASSED}\n"
    assert list(tmp_path.iterdir()) == []
    flags_of_both = {"output_file": ",".join(map(str, outputs)), "num_workers": 2, **flags}
    kill_while_it_writes(outputs[0].parent, no_tensorflow, flags_of_both)
    result = run(no_tensorflow, **flags_of_both)
    assert result.returncode == 0, result.stderr
    assert match_files(f"{outputs[0].parent}/*") == list(map(str, outputs))
    assert result.stderr.count(f"] there is no file {flags['vocab_file']};") == 1
    assert "asks for 10 predictions in 64 tokens, but" in result.stderr
    assert "documents=60" in result.stderr
    assert "creating: " in result.stderr
    files = list(map(str, outputs))
    check_record_files(files, pretraining_feature_specs(64, 5, 1000))
    assert count_records(files) > 550

    again = [tmp_path / "again" / output.name for output in outputs]
    result = run(no_tensorflow, output_file=",".join(map(str, again)), num_workers=1, **flags)
    assert result.returncode == 0, result.stderr
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
        result = run(no_tensorflow, *options, output_file=output, **flags, **beam)
        assert result.returncode == 0, result.stderr
        assert "documents=60" in result.stderr
        made[folder] = {path.name: path.read_bytes() for path in output.parent.iterdir()}
    assert made["beam"] == made["local"]
    assert match_files(f"{tmp_path}/beam/*") == [
        f"{tmp_path}/beam/records-0000{k}-of-00003" for k in range(3)
    ]


def test_word_piece_records_with_permutation(
    golden: Path, tmp_path: Path, no_tensorflow: str
) -> None:
    output = tmp_path / "records"
    result = run(
        no_tensorflow,
        input_file=golden / "pretraining_data" / "corpus.txt",
        output_file=output,
        vocab_file=golden / "tokenizer" / "vocab.txt",
        max_seq_length=48,
        dupe_factor=1,
        random_next_sentence=True,
        do_permutation=True,
        favor_shorter_ngram=False,
        do_whole_word_mask=False,
        do_lower_case=False,
        ngram=2,
        short_seq_prob=0.5,
        masked_lm_prob=0.2,
        random_seed=-4,
    )
    assert result.returncode == 0, result.stderr
    assert "--max_predictions_per_seq=40" in result.stderr
    assert "sentence_loss=nsp sentence_pairs=original swapped=0.00%" in result.stderr
    check_record_files([str(output)], pretraining_feature_specs(48, 40))
    assert len(set(read_records(str(output)))) > 300


def test_sentence_losses(golden: Path, tmp_path: Path, no_tensorflow: str) -> None:
    flags = {
        "input_file": golden / "pretraining_data" / "corpus.txt",
        "vocab_file": golden / "tokenizer" / "vocab.txt",
        "max_seq_length": 96,
        "dupe_factor": 1,
    }
    contents = {}
    for name, choice in {
        "original": {"random_next_sentence": True},
        "nsp": {"sentence_loss": "nsp"},
        "none": {"sentence_loss": "none", "random_next_sentence": False},
    }.items():
        result = run(no_tensorflow, output_file=tmp_path / name, **flags, **choice)
        assert result.returncode == 0, result.stderr
        assert f"sentence_loss={'nsp' if name == 'original' else name}" in result.stderr
        contents[name] = (tmp_path / name).read_bytes()
    assert contents["nsp"] == contents["original"]
    check_record_files([str(tmp_path / "none")], pretraining_feature_specs(96, 20))
    check_sentence_pairs([str(tmp_path / "nsp")], "sop")
    with pytest.raises(RecordError, match="none contains single runs"):
        check_sentence_pairs([str(tmp_path / "none")], "sop")


def test_a_missing_beam_is_an_error(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "apache_beam.py").write_text("raise ModuleNotFoundError('no apache_beam')\n")
    result = run(
        str(tmp_path),
        input_file=golden / "pretraining_data" / "corpus.txt",
        output_file=tmp_path / "records",
        runner="DirectRunner",
    )
    assert result.returncode == 1
    assert 'Install it with: pip install "albert_tf[beam]"' in result.stderr


def test_vocabulary(golden: Path, tmp_path: Path, no_tensorflow: str) -> None:
    flags = {
        "program": ("-m", "albert_tf.cli.train_sentencepiece"),
        "input_file": golden / "pretraining_data" / "corpus.txt",
        "model_prefix": tmp_path / "new" / "vocab",
        "vocab_size": 200,
    }
    checked = run(no_tensorflow, "--dry_run", **flags)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout == f"{DRY_RUN_PASSED}\n"
    assert list(tmp_path.iterdir()) == []
    result = run(no_tensorflow, **flags)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"vocab.model", "vocab.vocab"}
