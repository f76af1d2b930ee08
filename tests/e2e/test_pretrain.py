"""The command `pretrain` from raw text to an exported model, also if it is interrupted."""

import contextlib
import io
import json
import random
import re
import shutil
import signal
import time

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import convert as conversion
from albert_tf.data.errors import UserError
from tests.full_disk import file_size_limit
from tests.pretrain_run import PretrainRun
from tests.pretraining_run import assert_same_bits, read_checkpoint
from tests.programs import start_workers
from tests.run_in_process import assert_unchanged, run_command, tree

STAGES = [
    *("00-prepare_text.json", "01-train_sentencepiece.json"),
    *("02-create_pretraining_data.json", "03-create_pretraining_data.json"),
    *("04-run_pretraining.json", "05-run_pretraining.json", "06-convert_checkpoint.json"),
]
# Two stages of training. The first has batches of 256 sequences.
LONGER = {"max_seq_length": 32, "num_train_steps": 40}
LONGER |= {"save_checkpoints_steps": 3, "log_steps": 3}


def printed_by(run, **changes):
    """Runs the command in this process; returns its standard output.

    The exported model is also checked in this process, which takes less time.
    """

    def outputs_in_this_process(format_name, directory):
        path = run.folder / "outputs.npz"
        conversion.main(format_name, directory, str(path))
        with np.load(path) as file:
            return dict(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "outputs_in_fresh_process", outputs_in_this_process)
        # Pytest would write the progress to a file, which is small in tests of a full disk.
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            run_command(run, **changes)
    return printed.getvalue()


def contents(folder):
    """Returns the contents of all files by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def checkpoint_of(output, number):
    """Returns the tensors of the last checkpoint of a stage of training."""
    [index] = (output / "training" / str(number)).glob("model.ckpt-*.index")
    return read_checkpoint(index.with_suffix(""))


@pytest.fixture(scope="module")
def run(tmp_path_factory, eager):
    """Returns a finished run."""
    run = PretrainRun(tmp_path_factory.mktemp("pretrain"))
    run.printed = printed_by(run)
    return run


def test_a_dry_run_measures_the_speed_of_continued_models(run, capsys):
    """Text, vocabulary, records and training of the rehearsal are real, also for new pieces."""
    output = run.folder / "planned"
    model = {"albert_config_file": None, "init_checkpoint": run.output / "model"}
    for steps in ({}, {"vocab_size": 450}):
        flags = {"num_train_steps": None, "hours": 1.0, "dry_run": True, "output_dir": output}
        run_command(run, **model, **steps, **flags)
        printed = capsys.readouterr().out
        [steps] = re.findall(r"training 1, 16 tokens +about .*?([\d,]+) steps of 4,", printed)
        assert int(steps.replace(",", "")) > 1000  # an hour of a tiny model
        assert not output.exists()


class TestFinishedRun:
    def test_the_model_can_be_loaded(self, run):
        model = run.output / "model"
        config = json.loads((model / "config.json").read_text())
        assert config["model_type"] == "albert"
        assert config["vocab_size"] == 420
        names = {path.name for path in model.iterdir()}
        assert names >= {"config.json", "model.safetensors", "tokenizer.json", "spiece.model"}
        loaded, tokenizer = albert_tf.load(model), albert_tf.load_tokenizer(model)
        checkpoint = checkpoint_of(run.output, 1)
        [words] = [v for v in loaded.variables if v.shape == (420, 8)]
        np.testing.assert_array_equal(words, checkpoint["bert/embeddings/word_embeddings"])
        assert tokenizer.vocab_size == 420
        assert tokenizer.do_lower_case

    def test_files_of_the_stages(self, run):
        names = [path.name for path in sorted((run.output / "finished").iterdir())]
        assert names == STAGES
        plan = json.loads((run.output / "plan.json").read_text())
        for name, row in zip(names, plan["stages"], strict=True):
            finished = json.loads((run.output / "finished" / name).read_text())
            assert finished["settings"] == row["settings"]
        assert (run.output / "text" / "heldout.txt").read_text()
        log = (run.output / "log.txt").read_text()
        for part in ("documents=", "vocab_size=420", "instances="):
            assert part in log
        assert "INFO step 3/3 " in (run.output / "training" / "1" / "log.txt").read_text()
        assert not [path for path in run.output.rglob("*") if ".tmp-" in path.name]
        assert not (run.output / ".training.lock").exists()

    def test_the_summary_is_printed_and_is_the_model_card(self, run):
        lines = (run.output / "evaluation" / "eval_results.txt").read_text().splitlines()
        scores = dict(line.split(" = ") for line in lines)
        accuracy = f"masked-LM accuracy {float(scores['masked_lm_accuracy']):.1%}, against "
        card = (run.output / "README.md").read_text()
        assert card.startswith('---\nlanguage: "en"\nlibrary_name: transformers\n')
        assert "![Losses and accuracies of all stages](training_curves.png)" in card
        assert (run.output / "training_curves.png").exists()
        assert run.printed.startswith("model     given: 1 layers of 12, 0.0 million parameters")
        for text in (card, run.printed):
            assert accuracy in text
            assert "420 pieces, 32 positions\n" in text
            assert "training 1, 16 tokens" in text
            assert text.count("[MASK]") == text.count("(in the text: ") == 3
        assert "the same command with --num_train_steps=6" in run.printed
        assert f"albert_tf export_onnx --model={run.output}/model" in run.printed

    def test_the_same_command_changes_nothing(self, run):
        before = contents(run.output)
        printed = printed_by(run)
        assert contents(run.output) == before
        assert printed.partition("\n\n")[2] == run.printed.partition("\n\n")[2]

    @pytest.mark.slow
    def test_more_steps_extend_the_run(self, run, tmp_path):
        output = shutil.copytree(run.output, tmp_path / "output")
        before = contents(output)
        printed = printed_by(run, output_dir=output, num_train_steps=8)
        after = contents(output)
        for name, content in before.items():
            if name.partition("/")[0] in ("text", "vocabulary", "records", "training"):
                assert after[name] == content, name
        plan = json.loads(after["plan.json"])
        added = plan["stages"][-3]["settings"]
        assert added["num_train_steps"] == 5
        assert added["output_dir"] == "{run}/training/2"
        assert "The learning rate, which had decayed to 0, rises to " in printed
        assert "training 2, 16 tokens" in after["README.md"].decode()
        assert after["model/model.safetensors"] != before["model/model.safetensors"]
        [words] = [v for v in albert_tf.load(output / "model").variables if v.shape == (420, 8)]
        expected = checkpoint_of(output, 2)["bert/embeddings/word_embeddings"]
        np.testing.assert_array_equal(words, expected)
        printed_by(run, output_dir=output, num_train_steps=8)
        assert contents(output) == after
        with pytest.raises(UserError, match="--num_train_steps is 8 in the plan"):
            run_command(run, output_dir=output)
        assert_unchanged(output, tree(output))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Returns a finished run in another process, with two stages of training."""
    run = PretrainRun(tmp_path_factory.mktemp("undisturbed"))
    run.must_work(**LONGER)
    return run


def planned_directory(undisturbed, folder):
    """Returns a new directory that contains only the plan of a run."""
    (output := folder / "output").mkdir()
    shutil.copy(undisturbed.output / "plan.json", output)
    return output


def assert_same_results(output, expected):
    """Checks all files that do not contain times or speeds."""
    parts = ("text", "vocabulary", "records", "model", "evaluation/eval_results.txt", "README.md")
    files = [
        {  # the commands in the model card contain the directory
            name: data.replace(str(folder).encode(), b"RUN")
            for name, data in contents(folder).items()
            if name.startswith(parts)
        }
        for folder in (output, expected)
    ]
    assert files[0].keys() == files[1].keys()
    for name, data in files[0].items():
        assert data == files[1][name], name
    for number in (1, 2):
        assert_same_bits(checkpoint_of(output, number), checkpoint_of(expected, number))
    assert not [path for path in output.rglob("*") if ".tmp-" in path.name]


@pytest.mark.slow
class TestInterruptions:
    def test_killed_runs_end_with_the_same_files(self, undisturbed, tmp_path):
        output = planned_directory(undisturbed, tmp_path)
        number_of_stages = len(list((undisturbed.output / "finished").iterdir()))
        draws = random.SystemRandom()
        for finished in sorted(draws.sample(range(number_of_stages), 6)):
            program = undisturbed.start(**LONGER, output_dir=output)
            while len(list(output.glob("finished/*.json"))) < finished:
                assert program.is_running(), program.wait().output
                time.sleep(0.01)
            time.sleep(draws.uniform(0, 0.7))
            program.kill()
            program.wait()
        printed = undisturbed.must_work(**LONGER, output_dir=output)
        assert "masked-LM accuracy" in printed
        assert_same_results(output, undisturbed.output)

    def test_a_run_killed_before_its_plan_is_planned_again(self, undisturbed, tmp_path):
        output = tmp_path / "output"
        program = undisturbed.start(**LONGER, output_dir=output)
        while not output.exists():
            assert program.is_running(), program.wait().output
            time.sleep(0.01)
        program.kill()
        program.wait()
        assert {path.name for path in output.iterdir()} <= {".training.lock"}
        undisturbed.must_work(**LONGER, output_dir=output)
        assert_same_results(output, undisturbed.output)

    def test_a_signal_saves_the_last_step(self, undisturbed, tmp_path):
        output = planned_directory(undisturbed, tmp_path)
        flags = {**LONGER, "output_dir": output}
        program = undisturbed.start(**flags)
        while not list(output.glob("training/2/model.ckpt-*.index")):
            assert program.is_running(), program.wait().output
            time.sleep(0.01)
        program.send(signal.SIGTERM)
        result = program.wait()
        assert result.code == 143, result.output
        assert "Traceback" not in result.output
        assert undisturbed.start(**flags).wait().code == 0
        assert_same_results(output, undisturbed.output)

    def test_a_full_disk(self, undisturbed, tmp_path):
        """Each stage fails with one error. A start with more space finishes the run."""
        output = shutil.copytree(undisturbed.output, tmp_path / "output")
        for finished in sorted((output / "finished").iterdir(), reverse=True):
            finished.unlink()
            message = r"cannot be (written|saved).*File too large.* the same command again"
            with file_size_limit(5000), pytest.raises(UserError, match=message):
                printed_by(undisturbed, **LONGER, output_dir=output)
        undisturbed.must_work(**LONGER, output_dir=output)
        assert_same_results(output, undisturbed.output)


def assert_close(output, expected):
    """Checks that two runs differ only in the order of summation."""
    for number in (1, 2):
        actual = checkpoint_of(output, number)
        for name, value in checkpoint_of(expected, number).items():
            np.testing.assert_allclose(actual[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    names = [sorted(contents(folder / "model")) for folder in (output, expected)]
    assert names[0] == names[1]


@pytest.mark.slow
class TestSeveralDevices:
    def test_mirrored(self, undisturbed, tmp_path):
        output = tmp_path / "output"
        devices = {"distribution_strategy": "mirrored", "num_logical_cpu_devices": 2}
        undisturbed.must_work(**LONGER, **devices, output_dir=output)
        assert "replicas_in_sync=2" in (output / "training" / "2" / "log.txt").read_text()
        assert_close(output, undisturbed.output)
        before = contents(output)  # which does not depend on devices
        undisturbed.must_work(**LONGER, output_dir=output)
        assert contents(output) == before

    def test_two_workers(self, undisturbed, tmp_path):
        """Both are killed once. The first worker writes all files, and prints the summary."""
        output = tmp_path / "output"
        flags = undisturbed.flags(**LONGER, output_dir=output)
        workers = start_workers(undisturbed.script, tmp_path, flags)
        while not list(output.glob("training/2/model.ckpt-*.index")):
            for worker in workers:
                assert worker.is_running(), worker.wait().output
            time.sleep(0.02)
        for worker in workers:
            worker.kill()
            worker.wait()
        results = [one.wait() for one in start_workers(undisturbed.script, tmp_path, flags)]
        for result in results:
            assert result.code == 0, result.output
        assert ["masked-LM accuracy" in result.output for result in results] == [True, False]
        assert "replicas_in_sync=2" in (output / "training" / "2" / "log.txt").read_text()
        assert_close(output, undisturbed.output)
