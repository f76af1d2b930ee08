"""What `run_pretraining.py` says of input that cannot work; nothing is written before."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.original.files import write_checkpoint
from tests.pretraining_run import PretrainingRun, read_checkpoint
from tests.small_records import cut_in_record, damage_record, pretraining_columns, write_records


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return PretrainingRun(tmp_path_factory.mktemp("bad_input"))


@pytest.fixture(autouse=True)
def _fresh_output(run):
    shutil.rmtree(run.output, ignore_errors=True)


def must_fail(run, *messages, **changes):
    """Runs the command, which must end with a message and no stack trace."""
    result = run(**changes)
    assert result.code == 1, result.output
    for message in messages:
        assert str(message) in result.output
    assert "Traceback" not in result.output
    return result


WRONG_FLAGS = {
    "a typo": ({"lerning_rate": 0.1}, "learning_rate"),
    "nothing to do": ({"do_train": False}, "--do_train, --do_eval or both"),
    "TPU": ({"use_tpu": True}, "No TPU can be reached as --tpu_name=local"),
    "two fractions to mask": (
        {"masked_lm_budget": 0.15, "masked_lm_prob": 0.2},
        "--masked_lm_prob=0.2 and --masked_lm_budget=0.15 are two names",
    ),
    "masking of masked records": (
        {"masked_lm_budget": 0.15},
        "train-0.tfrecord: its records were masked when they were made",
    ),
    "no such records": ({"input_file": "/nowhere/*.tfrecord"}, "no file matches '/nowhere"),
    "no such evaluation records": (
        {"eval_input_file": "/nowhere", "do_eval": True},
        "--eval_input_file: no file matches '/nowhere",
    ),
    "an option of another optimizer": ({"optimizer": "sgd"}, "--optimizer=sgd"),
    "a negative rate": ({"learning_rate": -1.0}, "--learning_rate must be"),
    "no steps": ({"num_train_steps": 0}, "--num_train_steps must be"),
    "a negative warm-up": ({"num_warmup_steps": -1}, "--num_warmup_steps must be"),
    "an odd batch on two replicas": (
        {
            "train_batch_size": 5,
            "num_logical_cpu_devices": 2,
            "distribution_strategy": "mirrored",
        },
        "--train_batch_size=5 with 2 replicas; 6 would do",
    ),
    "an odd evaluation batch on two replicas": (
        {
            "do_eval": True,
            "eval_batch_size": 3,
            "num_logical_cpu_devices": 2,
            "distribution_strategy": "mirrored",
        },
        "--eval_batch_size=3 with 2 replicas; 4 would do",
    ),
    "longer records expected": (
        {"max_seq_length": 12},
        "train-0.tfrecord, record 1: feature 'input_ids' holds 11 values, 12 were expected. "
        "Set --max_seq_length",
    ),
    "more predictions expected": (
        {"max_predictions_per_seq": 4},
        "feature 'masked_lm_positions' holds 3 values, 4 were expected. "
        "Set --max_predictions_per_seq",
    ),
    "sequences longer than the position table": (
        {"max_seq_length": 17},
        "--max_seq_length must be in 1..16",
    ),
    "no such checkpoint": (
        {"init_checkpoint": "/nowhere/model.ckpt"},
        "no checkpoint '/nowhere/model.ckpt' (--init_checkpoint)",
    ),
    "no such vocabulary": ({"vocab_file": "/nowhere"}, "--vocab_file=/nowhere: there is no"),
    "no checkpoint to evaluate": (
        {"do_train": False, "do_eval": True},
        "has no checkpoint for --eval_checkpoint=newest. Train first, or give --init_checkpoint",
    ),
    "no checkpoints to evaluate": (
        {"do_train": False, "do_eval": True, "eval_checkpoint": "all"},
        "has no checkpoint for --eval_checkpoint=all. Train first",
    ),
    "no checkpoint in all the time": (
        {"do_train": False, "do_eval": True, "eval_checkpoint": "all", "watch_secs": 0.5},
        "has no checkpoint for --eval_checkpoint=all",
    ),
}


@pytest.mark.parametrize("case", WRONG_FLAGS)
def test_flags(run, case):
    changes, message = WRONG_FLAGS[case]
    must_fail(run, message, **changes)
    assert not run.output.exists() or not list(run.output.iterdir())


class TestConfiguration:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "There is no configuration file"),
            ("vocab_size: 31", "line 1, column 1"),
            ("[31]", "[31]"),
            ('{"hidden_size": 12}', "no 'vocab_size'"),
            ('{"vocab_size": 31, "hidden_size": 12}', "hidden_size must be a multiple of"),
        ],
    )
    def test_file(self, run, tmp_path, content, message):
        path = tmp_path / "config.json"
        if content is not None:
            path.write_text(content)
        must_fail(run, path, message, albert_config_file=path)
        assert not run.output.exists()

    def test_vocabulary_of_another_size(self, run, tmp_path):
        vocabulary = (run.folder / "model" / "vocab.txt").read_text()
        path = tmp_path / "vocab.txt"
        path.write_text(vocabulary + "more\n")
        must_fail(run, path, "has 32 entries, but", "says vocab_size 31", vocab_file=path)
        assert not run.output.exists()


class TestRecords:
    def test_of_a_larger_vocabulary(self, run, tmp_path):
        columns = pretraining_columns(10, seed=3)
        columns["input_ids"][6, 2] = 31
        columns["masked_lm_ids"][0, 0] = 40
        file = write_records(tmp_path / "large", columns)
        must_fail(
            run,
            f"{file}, record 1: feature 'masked_lm_ids' holds 40, but values must lie in [0, 31), "
            "the limit set by vocab_size",
            input_file=file,
        )
        assert not run.output.exists()

    def test_of_a_larger_vocabulary_later_in_the_file(self, run, tmp_path):
        columns = pretraining_columns(10, seed=3)
        columns["input_ids"][6, 2] = 31
        file = write_records(tmp_path / "large", columns)
        message = f"{file}, record 7: feature 'input_ids' holds 31, but values must lie in [0, 31)"
        must_fail(run, message, input_file=file, output_dir=tmp_path / "output")

    def test_none_at_all(self, run, tmp_path):
        (tmp_path / "empty").touch()
        must_fail(run, "No record in any of the files", input_file=tmp_path / "empty")
        assert not run.output.exists()

    def test_that_are_something_else(self, run):
        config = run.folder / "model" / "albert_config.json"
        must_fail(run, f"{config}, record 1", "no TFRecord file", input_file=config)
        assert not run.output.exists()

    def test_cut_short(self, run, tmp_path):
        file = write_records(tmp_path / "cut", pretraining_columns(60, seed=3))
        cut_in_record(file, 50)
        must_fail(run, f"{file}, record 50: the file ends inside this record", input_file=file)
        assert not run.output.exists()

    def test_damaged_ones_in_evaluation(self, run, tmp_path):
        checkpoint = run.fresh_checkpoint(tmp_path)
        file = write_records(tmp_path / "damaged", pretraining_columns(10, seed=3))
        damage_record(file, 7)
        must_fail(
            run,
            f"{file}, record 7: the checksum differs",
            do_train=False,
            do_eval=True,
            init_checkpoint=checkpoint,
            eval_input_file=file,
            output_dir=tmp_path / "output",
        )
        assert not (tmp_path / "output").exists()

    def test_fewer_than_a_batch_are_read_in_several_passes(self, run, tmp_path):
        file = write_records(tmp_path / "few", pretraining_columns(4, seed=3))
        run.must_work(input_file=file, output_dir=tmp_path / "output", num_train_steps=5)
        assert (tmp_path / "output" / "model.ckpt-5.index").exists()


class TestCheckpoint:
    def test_of_another_size(self, run, tmp_path):
        checkpoint = run.fresh_checkpoint(tmp_path, hidden_size=15)
        must_fail(
            run,
            "does not fill the encoder",
            "bert/pooler/dense/kernel is [15, 15] in the checkpoint, [12, 12] in the model",
            init_checkpoint=checkpoint,
        )
        assert not run.output.exists()

    def test_of_another_size_in_evaluation(self, run, tmp_path):
        checkpoint = run.fresh_checkpoint(tmp_path, num_hidden_groups=1)
        must_fail(
            run,
            "does not fill the encoder",
            do_train=False,
            do_eval=True,
            init_checkpoint=checkpoint,
        )

    def test_without_heads_in_evaluation(self, run, tmp_path):
        tensors = read_checkpoint(run.fresh_checkpoint(tmp_path))
        encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
        write_checkpoint(str(tmp_path / "encoder.ckpt"), encoder, global_step=3)
        must_fail(
            run,
            "does not hold the whole model",
            "not in the checkpoint, freshly initialised: cls/predictions/output_bias",
            do_train=False,
            do_eval=True,
            init_checkpoint=tmp_path / "encoder.ckpt",
        )

    def test_damaged(self, run, tmp_path):
        checkpoint = run.fresh_checkpoint(tmp_path)
        data = tmp_path / "model.ckpt-3.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:-100])
        must_fail(run, checkpoint, "is damaged", init_checkpoint=checkpoint)


class TestOutputDirectory:
    def test_below_a_file(self, run):
        output = run.eval_file / "output"
        must_fail(run, f"--output_dir '{output}' cannot be written to", output_dir=output)

    def test_a_file_in_the_place_of_a_folder(self, run, tmp_path):
        (tmp_path / "tensorboard").write_text("")
        must_fail(run, f"--output_dir '{tmp_path}' has a file tensorboard", output_dir=tmp_path)

    def test_below_a_file_in_evaluation(self, run, tmp_path):
        output = run.eval_file / "output"
        must_fail(
            run,
            f"--output_dir '{output}' cannot be written to",
            output_dir=output,
            do_train=False,
            do_eval=True,
            init_checkpoint=run.fresh_checkpoint(tmp_path),
        )

    def test_of_another_model(self, run, tmp_path):
        run.config.replace(hidden_size=15).to_json_file(str(tmp_path / "albert_config.json"))
        must_fail(
            run,
            "--output_dir belongs to another model",
            "hidden_size is 15 there, 12 now",
            output_dir=tmp_path,
        )

    def test_of_another_vocabulary(self, run, tmp_path):
        shutil.copy(run.folder / "model" / "albert_config.json", tmp_path)
        vocabulary = (run.folder / "model" / "vocab.txt").read_text()
        (tmp_path / "vocab.txt").write_text(vocabulary.replace("\nz\n", "\nother\n"))
        must_fail(run, "--output_dir belongs to another model: its vocabulary", output_dir=tmp_path)

    def test_with_checkpoints_that_cannot_be_continued(self, run, tmp_path):
        run.fresh_checkpoint(tmp_path)
        must_fail(
            run,
            "model.ckpt-3 cannot be continued: it has no",
            "give the checkpoint as --init_checkpoint and a fresh --output_dir",
            output_dir=tmp_path,
        )


class TestDivergence:
    def test_of_the_weights(self, run, tmp_path):
        """The last update overflows: no loss was computed with its weights."""
        must_fail(
            run,
            "Step 1: the updated weights are not finite. Nothing was saved since; there is no "
            "checkpoint yet. A lower --learning_rate",
            optimizer="adamw",
            learning_rate=3e38,
            num_warmup_steps=0,
            save_checkpoints_steps=1,
            output_dir=tmp_path,
        )
        assert not list(tmp_path.glob("*ckpt*"))

    def test_of_the_loss(self, run, tmp_path):
        """Huge weights after the first checkpoint; the loss with them is not a number."""
        must_fail(
            run,
            "Step 2: loss=nan",
            f"the last good checkpoint is {tmp_path / 'model.ckpt-1'}",
            optimizer="adamw",
            learning_rate=1e36,
            num_warmup_steps=0,
            save_checkpoints_steps=1,
            log_steps=100,
            output_dir=tmp_path,
        )
        tensors = read_checkpoint(tmp_path / "model.ckpt-1")
        assert all(np.isfinite(value).all() for value in tensors.values())
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
