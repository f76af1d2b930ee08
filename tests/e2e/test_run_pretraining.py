"""The command `run_pretraining.py`: training, evaluation, both, and the files they write."""

import json
import os
import random
import re
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.cli import run_pretraining
from albert_tf.cli.flags import DRY_RUN_PASSED
from albert_tf.pretraining.create_data import create_pretraining_data
from albert_tf.pretraining.settings import PretrainingDataSettings
from tests.pretraining_run import SCRIPT, PretrainingRun, assert_same_bits, read_checkpoint
from tests.programs import TIMEOUT, Program
from tests.run_in_process import assert_unchanged, logged_plan, run_command, run_here, tree
from tests.small_records import LENGTH, plain_columns, pretraining_columns, write_records

RESULTS = {
    *("global_step", "loss", "masked_lm_accuracy", "masked_lm_loss"),
    *("sentence_order_accuracy", "sentence_order_loss"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a run of twelve steps with evaluation."""
    run = PretrainingRun(tmp_path_factory.mktemp("trained"), hidden_dropout_prob=0.2)
    run.printed = run.must_work(do_eval=True)
    return run


class TestTraining:
    def test_writes_configuration_tokenizer_and_checkpoints(self, trained):
        model = trained.folder / "model"
        written = json.loads((trained.output / "albert_config.json").read_text())
        assert len(written.pop("vocabulary_sha256")) == 64
        assert written == json.loads((model / "albert_config.json").read_text())
        assert (trained.output / "vocab.txt").read_text() == (model / "vocab.txt").read_text()
        steps = ["model.ckpt-10.index", "model.ckpt-12.index", "model.ckpt-5.index"]
        assert trained.files_of("model.ckpt-*.index") == [*steps, "model.ckpt-best.index"]
        newest = tf.train.latest_checkpoint(str(trained.output))
        assert newest == str(trained.output / "model.ckpt-12")
        assert not [path for path in trained.output.rglob("*") if "tmp" in path.name]

    def test_the_best_checkpoint_has_the_highest_accuracy_and_no_slots(self, trained):
        records = trained.metrics("eval")
        accuracies = {step: record["masked_lm_accuracy"] for step, record in records.items()}
        assert accuracies.keys() == {5, 10, 12}
        losses = {step: record["loss"] for step, record in records.items()}
        best = max(accuracies, key=lambda step: (accuracies[step], -losses[step]))
        expected = f"12:{best}:{accuracies[best]}"
        assert (trained.output / "best_trial.txt").read_text() == expected
        tensors = read_checkpoint(trained.output / f"model.ckpt-{best}")
        tensors = {name: v for name, v in tensors.items() if "/adam_" not in name}
        assert_same_bits(read_checkpoint(trained.output / "model.ckpt-best"), tensors)

    def test_reports_every_interval_and_every_checkpoint(self, trained):
        records = trained.metrics("train")
        assert list(records) == [4, 5, 8, 10, 12]
        lines = re.findall(r"^step +(\d+)/12   loss (\S+)", trained.printed, re.MULTILINE)
        assert [int(step) for step, _ in lines] == list(records)
        marked = re.findall(r"^eval +(\d+)/12 .* best$", trained.printed, re.MULTILINE)
        assert int(marked[-1]) == best_step(trained)
        for step, loss in lines:
            np.testing.assert_allclose(float(loss), records[int(step)]["loss"], rtol=0, atol=5e-5)
        results = (trained.output / "eval_results.txt").read_text().splitlines()
        assert [line.split(" = ")[0] for line in results] == sorted(RESULTS)
        assert records[12].keys() > RESULTS - {"global_step"} | {"gradient_norm", "learning_rate"}
        # The rate of the twelfth update: the decay after eleven finished steps.
        np.testing.assert_allclose(records[12]["learning_rate"], 0.00176 / 12, rtol=1e-5, atol=0)
        assert (trained.output / "training_curves.png").exists()
        assert list((trained.output / "tensorboard" / "train").iterdir())
        settings = json.loads((trained.output / "run_config.json").read_text())
        assert settings["config"]["trainer"]["train_batch_size"] == 6
        assert settings["config"]["sentence_loss"] == "sop"
        assert settings["onednn"] == (os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1")

    def test_restarting_a_finished_run_changes_nothing(self, trained):
        before = (trained.output / "model.ckpt-12.index").stat().st_mtime_ns
        printed = trained.must_work(do_eval=True, init_checkpoint="/nowhere")
        assert "--init_checkpoint=/nowhere is not used" in printed
        assert "step 12 of 12" in printed
        assert (trained.output / "model.ckpt-12.index").stat().st_mtime_ns == before
        assert trained.metrics("eval").keys() == {5, 10, 12}


class TestDryRun:
    def test_logs_the_plan_of_the_run(self, trained, capsys, caplog):
        caplog.set_level("INFO", logger="absl")
        before = tree(trained.folder)
        fresh = trained.folder / "fresh"
        run_here(run_pretraining, trained.flags(do_eval=True, dry_run=True, output_dir=fresh))
        assert_unchanged(trained.folder, before)
        assert capsys.readouterr().out.endswith(f"{DRY_RUN_PASSED}\n")
        plan, real = logged_plan(caplog.text), logged_plan(trained.log())
        assert plan == {"steps": 12, "train_batch_size": 6, "examples": 20, "epochs": 3.6}
        assert real == plan

    def test_a_dry_run_does_not_wait_for_other_workers(self, trained, tmp_path, monkeypatch):
        """A dry run also rejects files that the workers could not share."""
        cluster = {"worker": ["localhost:1", "nowhere.invalid:2"]}
        config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
        flags = trained.flags(output_dir=trained.folder / "fresh", dry_run=True)
        for name in ("even-0", "even-1"):
            shutil.copy(trained.files[0], tmp_path / name)
        flags["input_file"], uneven = tmp_path / "even-*", flags["input_file"]
        worker = Program(SCRIPT, trained.folder, flags, {"TF_CONFIG": json.dumps(config)})
        result = worker.wait()
        assert result.code == 0, result.output
        assert " on 2 devices: " in result.output
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        with pytest.raises(ValueError, match="2 workers cannot share the input"):
            run_here(run_pretraining, {**flags, "input_file": uneven})


def test_a_signal_ends_a_waiting_chief(trained):
    cluster = {"worker": ["localhost:1", "nowhere.invalid:2"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    flags = trained.flags(output_dir=trained.folder / "fresh")
    chief = Program(SCRIPT, trained.folder, flags, {"TF_CONFIG": json.dumps(config)})
    while "Waiting for the other workers" not in chief.printed():
        assert chief.is_running(), chief.wait().output
        time.sleep(0.05)
    time.sleep(0.2)
    chief.send(signal.SIGTERM)
    result = chief.wait()
    assert result.code == 128 + signal.SIGTERM
    assert "SIGTERM: stopped" in result.output


ALL_CHECKPOINTS = {"do_train": False, "do_eval": True, "eval_checkpoint": "all"}


class TestEvaluation:
    @pytest.mark.parametrize(
        "choice", [pytest.param("best", marks=pytest.mark.slow), "model.ckpt-5.index"]
    )
    @pytest.mark.usefixtures("eager")
    def test_evaluating_one_checkpoint(self, trained, choice, caplog):
        caplog.set_level("INFO", logger="absl")
        step = best_step(trained) if choice == "best" else 5
        path = choice if choice == "best" else trained.output / choice
        other = trained.output / "model.ckpt-10"
        flags = {"do_train": False, "do_eval": True, "eval_checkpoint": path}
        run_command(trained, **flags, init_checkpoint=other)
        assert f"{other} is not evaluated: eval_checkpoint=" in caplog.text
        results = trained.results()
        assert results.pop("global_step") == step
        recorded = trained.metrics("eval")[step]
        for name, value in results.items():
            np.testing.assert_allclose(value, recorded[name], rtol=1e-5, atol=0, err_msg=name)
        # Evaluating one checkpoint, perhaps on other data, does not change the best checkpoint.
        assert (trained.output / "best_trial.txt").read_text().startswith("12:")

    @pytest.mark.slow
    def test_waiting_for_checkpoints_times_out(self, trained, tmp_path):
        output = shutil.copytree(trained.output, tmp_path / "output")
        for name in ("best_trial.txt", "model.ckpt-best.index"):
            (output / name).unlink()
        printed = trained.must_work(
            **ALL_CHECKPOINTS, output_dir=output, num_train_steps=1000, watch_secs=1.0
        )
        assert re.findall(r"global_step = (\d+)", printed) == ["5", "10", "12"]
        last, best, value = (output / "best_trial.txt").read_text().split(":")
        assert (int(last), int(best)) == (12, best_step(trained))
        recorded = trained.metrics("eval")[int(best)]["masked_lm_accuracy"]
        np.testing.assert_allclose(float(value), recorded, rtol=1e-5, atol=0)
        assert (output / "model.ckpt-best.index").exists()

    @pytest.mark.slow
    def test_evaluating_during_a_training_run_ends_with_the_run(self, tmp_path):
        run = PretrainingRun(tmp_path)
        training = run.start(num_train_steps=80, save_checkpoints_steps=1, keep_checkpoint_max=1)
        printed = run.must_work(**ALL_CHECKPOINTS, num_train_steps=80, watch_secs=TIMEOUT)
        assert training.wait().code == 0
        steps = [int(step) for step in re.findall(r"global_step = (\d+)", printed)]
        assert steps == sorted(set(steps))
        assert steps[-1] == 80
        assert (run.output / "best_trial.txt").read_text().startswith("80:")

    @pytest.mark.slow
    def test_evaluating_checkpoints_of_a_run_without_evaluation(self, trained, tmp_path):
        """The state of a directory whose run was killed between checkpoint and evaluation."""
        output = shutil.copytree(trained.output, tmp_path / "output")
        for name in ("best_trial.txt", "eval_results.txt"):
            (output / name).unlink()
        trained.must_work(output_dir=output, do_eval=True)
        assert "global_step = 12\n" in (output / "eval_results.txt").read_text()
        assert (output / "best_trial.txt").read_text().startswith("12:12:")


def best_step(run):
    return int((run.output / "best_trial.txt").read_text().split(":")[1])


@pytest.mark.slow
def test_initializing_from_a_shared_model_with_its_first_group(tmp_path):
    run = PretrainingRun(tmp_path, num_hidden_layers=2)
    shared = read_checkpoint(run.fresh_checkpoint(tmp_path))
    config = run.config.replace(num_hidden_groups=2)
    config.to_json_file(str(tmp_path / "model" / "albert_config.json"))
    flags = {"init_checkpoint": tmp_path / "model.ckpt-3", "num_train_steps": 1}
    assert "--init_from_group0" in run.must_fail(**flags)
    assert "48 of 48 variables restored" in run.must_work(**flags, init_from_group0=True)
    # The first update of a warm-up has rate 0: the weights are those it started from.
    tensors = read_checkpoint(run.output / "model.ckpt-1")
    kernel = "bert/encoder/transformer/group_{}/inner_group_0/ffn_1/intermediate/dense/kernel"
    for group in (0, 1):
        np.testing.assert_array_equal(tensors[kernel.format(group)], shared[kernel.format(0)])


SHORT = {"num_train_steps": 4, "num_warmup_steps": 1, "do_eval": True}
HEAD = ("cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights")


@pytest.mark.slow
class TestSentenceLosses:
    def test_next_sentence_prediction_differs_only_in_names(self, trained, tmp_path):
        run = PretrainingRun(tmp_path)
        run.must_work(**SHORT, sentence_loss="nsp")
        names = {name.replace("sentence_order", "next_sentence") for name in RESULTS}
        assert run.results().keys() == names
        assert run.metrics("train")[4].keys() >= {"next_sentence_loss", "next_sentence_accuracy"}
        ours, theirs = (read_checkpoint(r.output / "model.ckpt-best") for r in (run, trained))
        assert ours.keys() == theirs.keys()
        assert "sentence_loss is 'nsp' in" in run.must_fail(**SHORT, sentence_loss="sop")
        printed = run.must_work(**SHORT, do_train=False)
        assert "sentence_loss is 'nsp' in " in printed

    def test_without_a_sentence_loss_the_model_has_no_head(self, trained, tmp_path):
        run = PretrainingRun(tmp_path)
        flags = {**SHORT, "sentence_loss": "none"}
        run.must_work(**flags, init_checkpoint=trained.output / "model.ckpt-best")
        assert f"in the checkpoint only, not used: {', '.join(HEAD)}" in run.log()
        assert run.results().keys() == {name for name in RESULTS if "sentence" not in name}
        tensors = read_checkpoint(run.output / "model.ckpt-4")
        names = {name for name in tensors if "/adam_" not in name}
        assert names == read_checkpoint(trained.output / "model.ckpt-best").keys() - {*HEAD}
        run.must_work(**flags, do_train=False, eval_checkpoint="best")


@pytest.mark.slow
@pytest.mark.parametrize("keep_accents", [False, True])
def test_words_longer_than_the_predictions(tmp_path, tokenizer, keep_accents):
    """Only the word starts of `keep_accents` mask them by token; otherwise there is no mask."""
    words = ["".join(random.Random(n).choices("acgt", k=300)) for n in range(40)]
    (tmp_path / "text").write_text("\n".join(words))
    create_pretraining_data(
        PretrainingDataSettings(
            input_file=str(tmp_path / "text"),
            output_file=str(tmp_path / "dna.tfrecord"),
            spm_model_file=tokenizer.files[0],
            keep_accents=keep_accents,
            masked_lm_prob=0,
            sentence_loss="none",
            max_seq_length=LENGTH,
            num_workers=1,
        )
    )
    run = PretrainingRun(tmp_path, vocab_size=1000)
    (tmp_path / "model" / "vocab.txt").unlink()
    flags = {**SHORT, "input_file": tmp_path / "dna.tfrecord", "masked_lm_prob": 0.3}
    flags |= {"eval_input_file": None, "do_eval": False, "sentence_loss": "none"}
    flags["spm_model_file"] = tokenizer.files[0]
    if keep_accents:
        run.must_work(**flags)
        assert run.metrics()[4]["masked_lm_loss"] > 0
    else:
        assert "--nodo_whole_word_mask" in run.must_fail(**flags)
        run.must_work(**flags, do_whole_word_mask=False)


@pytest.mark.slow
def test_plain_records_are_masked_during_training(tmp_path):
    """Tests both names of the flag. Evaluations of equal weights on plain records are equal."""
    run = PretrainingRun(tmp_path)
    plain = write_records(tmp_path / "plain.tfrecord", plain_columns(20, seed=3))
    flags = {"input_file": plain, "eval_input_file": None, "do_eval": True, "masked_lm_prob": 0.3}
    run.must_work(**flags, masked_lm_budget=0.3, ngram=2)
    assert np.isfinite(run.metrics()[12]["masked_lm_loss"])
    best = run.results()
    config = json.loads((run.output / "run_config.json").read_text())
    assert config["config"]["input"]["masking"]["settings"]["ngram"] == 2
    flags["masked_lm_budget"] = flags.pop("masked_lm_prob")
    run.must_work(**flags, do_train=False, ngram=2, eval_batch_size=7)
    assert run.results()["masked_lm_accuracy"] == best["masked_lm_accuracy"]
    (tmp_path / "model" / "vocab.txt").unlink()
    assert "--masked_lm_prob" in run.must_fail(**flags, output_dir=tmp_path / "other")


@pytest.mark.slow
def test_flags_without_effect_and_a_long_warm_up_are_logged(tmp_path):
    run = PretrainingRun(tmp_path)
    printed = run.must_work(
        **{"num_train_steps": 2, "num_warmup_steps": 3125, "tpu_name": "tpu"},
        **{"master": "grpc://somewhere", "tpu_zone": "us-central1-a"},
    )
    assert "--master: No effect" in printed
    assert "--tpu_zone: No effect" in printed
    assert "--tpu_name has no effect without --use_tpu" in printed
    assert "--num_tpu_cores" not in printed
    assert "The warm-up ends at step 3125, and training at step 2" in printed


class TestGrownModel:
    """The run starts from a model with another vocabulary and fewer positions."""

    @pytest.mark.usefixtures("eager")
    def test_resumed_runs_have_the_same_weights(self, trained, tmp_path, caplog):
        caplog.set_level("INFO", logger="absl")
        grown = PretrainingRun(tmp_path)
        tokens = (grown.folder / "model" / "vocab.txt").read_text().split()
        vocabulary = tmp_path / "new.txt"
        vocabulary.write_text("\n".join([*tokens[:4], "new", *tokens[5:20], "[MASK]"]))
        columns = pretraining_columns(20, seed=4, length=20, vocabulary=21)
        flags = {
            "init_checkpoint": trained.output / "model.ckpt-12",
            "grow_init_checkpoint": True,
            "vocab_file": vocabulary,
            "albert_config_file": None,
            "max_seq_length": 20,
            "num_train_steps": 6,
            "input_file": write_records(tmp_path / "long.tfrecord", columns),
        }
        run_command(grown, **flags)
        pieces = "20 kept, 1 new, 11 dropped"
        assert f"pieces: {pieces}; positions: 16 kept, 4 copied, 0 dropped" in caplog.text
        last = read_checkpoint(grown.output / "model.ckpt-6")
        assert last["bert/embeddings/position_embeddings"].shape == (20, 8)
        for path in grown.output.glob("model.ckpt-6*"):
            path.unlink()
        caplog.clear()
        run_command(grown, **flags)
        assert "Growing" not in caplog.text
        assert_same_bits(read_checkpoint(grown.output / "model.ckpt-6"), last)

    def test_needs_a_model_to_train(self, trained):
        for changes in ({}, {"init_checkpoint": "mini", "do_train": False, "do_eval": True}):
            flags = trained.flags(grow_init_checkpoint=True, output_dir="new", **changes)
            with pytest.raises(ValueError, match="requires --init_checkpoint and --do_train"):
                run_here(run_pretraining, flags)
