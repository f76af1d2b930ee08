"""Files and terminal output of a run."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from matplotlib.image import imread

from albert_tf.checkpoints.model_directory import read_run_config
from albert_tf.data.files import WriteError
from albert_tf.training import run_log
from albert_tf.training.run_log import RunLog
from tests.full_disk import file_size_limit


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


def read_metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def read_scalars(folder):
    """Returns {(tag, step): value} of all event files in a folder."""
    scalars = {}
    for path in sorted(folder.iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                assert (value.tag, event.step) not in scalars
                scalars[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    return scalars


def write_run(folder, clock, last_step=30):
    """Writes three intervals of 10 steps with evaluations."""
    log = RunLog(str(folder), total_steps=60, clock=clock)
    for step in range(10, last_step + 1, 10):
        clock.now += 4.0
        log.train(step, {"loss": 100.0 / step, "learning_rate": 0.1}, count=80)
        log.evaluation(step, {"loss": 200.0 / step, "eval_accuracy": step / 100})
    log.close()


class TestFiles:
    def test_metrics_and_tensorboard_have_the_same_values(self, tmp_path):
        write_run(tmp_path, Clock())
        records = read_metrics(tmp_path)
        assert [(r["phase"], r["step"]) for r in records] == [
            (phase, step) for step in (10, 20, 30) for phase in ("train", "eval")
        ]
        assert records[2] == {
            "step": 20,
            "phase": "train",
            "time": records[2]["time"],
            "loss": 5.0,
            "learning_rate": 0.1,
            "examples_per_second": 20.0,
            "steps_per_second": 2.5,
        }
        for phase, tags in (("train", 4), ("eval", 2)):
            scalars = read_scalars(tmp_path / "tensorboard" / phase)
            assert len(scalars) == 3 * tags
            for record in (r for r in records if r["phase"] == phase):
                for name in set(record) - {"step", "phase", "time"}:
                    np.testing.assert_allclose(
                        scalars[name, record["step"]], record[name], rtol=1e-6, atol=0
                    )

    def test_resuming_removes_records_after_the_checkpoint(self, tmp_path):
        clock = Clock()
        write_run(tmp_path, clock)
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 40, "phase": "tr')  # cut short by a crash
        log = RunLog(str(tmp_path), total_steps=60, start_step=20, clock=clock)
        kept = read_metrics(tmp_path)
        assert [r["step"] for r in kept] == [10, 10, 20, 20]
        clock.now += 2.0
        log.train(25, {"loss": 7.0}, count=5)
        log.close()
        records = read_metrics(tmp_path)
        assert records[:4] == kept
        assert records[4]["step"] == 25
        assert records[4]["steps_per_second"] == 2.5
        losses = read_scalars(tmp_path / "tensorboard" / "train")
        assert {step for _, step in losses} == {10, 20, 25}
        assert losses["loss", 25] == 7.0

    def test_damaged_lines_are_skipped_with_a_warning(self, tmp_path, caplog):
        write_run(tmp_path, Clock())
        path = tmp_path / "metrics.jsonl"
        before, content = read_metrics(tmp_path), path.read_bytes()
        lines = content.split(b"\n")
        damages = (
            b'{"step": 20}',
            b'{"step": 20, "phase": "../eval"}',
            b'{"step": 20, "phase": "eval", "loss": [1]}',
            b"\0" * 512,
        )
        for damaged in (
            content + b'{"step": 30, "pha',
            *(b"\n".join([*lines[:2], damage, *lines[2:]]) for damage in damages),
        ):
            path.write_bytes(damaged)
            RunLog(str(tmp_path), 60, start_step=30, clock=Clock()).close()
            assert read_metrics(tmp_path) == before
        assert caplog.text.count(f"1 damaged lines of {path}") == len(damages)

    def test_repeated_evaluation_replaces_the_first(self, tmp_path):
        write_run(tmp_path, Clock())
        log = RunLog(str(tmp_path), total_steps=60, start_step=30)
        log.evaluation(20, {"loss": 0.5})
        log.close()
        evaluations = [r for r in read_metrics(tmp_path) if r["phase"] == "eval"]
        assert [(r["step"], r["loss"]) for r in evaluations] == [
            (10, 20.0),
            (20, 0.5),
            (30, 200 / 30),
        ]
        RunLog(str(tmp_path), total_steps=60).close()
        assert read_metrics(tmp_path) == []
        assert list((tmp_path / "tensorboard").iterdir()) == []

    def test_nan_and_infinity_become_null(self, tmp_path):
        log = RunLog(str(tmp_path), total_steps=9)
        log.train(3, {"loss": float("nan"), "gradient_norm": float("inf")}, count=1)
        log.close()
        (record,) = read_metrics(tmp_path)
        assert (record["loss"], record["gradient_norm"]) == (None, None)
        RunLog(str(tmp_path), total_steps=9, start_step=3).close()
        assert read_metrics(tmp_path) == [record]

    def test_resumed_run_warns_of_changed_settings(self, tmp_path, monkeypatch):
        warnings = []
        monkeypatch.setattr(logging, "warning", lambda text, *args: warnings.append(text % args))
        for step, optimizer in ((0, "lamb"), (0, "sgd"), (4, "adamw")):
            log = RunLog(str(tmp_path), total_steps=9, start_step=step)
            log.write_config({"optimizer": {"rate": 0.5, "optimizer": optimizer}, "files": ("a",)})
            log.close()
        run = tmp_path / "run_config.json"
        assert warnings == [
            f"Changed at step 4: optimizer.optimizer is 'sgd' in {run}, but 'adamw' in this run"
        ]

    def test_config_of_a_finished_run_is_kept(self, tmp_path, caplog):
        for rate, step in ((0.5, 0), (0.1, 9)):
            log = RunLog(str(tmp_path), total_steps=9, start_step=step)
            log.write_config({"optimizer": {"learning_rate": rate}})
            log.close()
        assert "optimizer.learning_rate is 0.5 in" in caplog.text
        assert read_run_config(str(tmp_path)) == {"optimizer": {"learning_rate": 0.5}}

    def test_damaged_run_config_is_replaced(self, tmp_path, caplog):
        path = tmp_path / "run_config.json"
        for content in (b"[]", b'{"config": 3}'):  # from another program
            path.write_bytes(content)
            assert read_run_config(str(tmp_path)) == {}
        assert not caplog.text
        path.write_bytes(b"{")
        assert read_run_config(str(tmp_path)) == {}
        assert str(path) in caplog.text
        log = RunLog(str(tmp_path), 60, start_step=30, clock=Clock())
        log.write_config({"a": 1})
        log.close()
        assert read_run_config(str(tmp_path)) == {"a": 1}

    @pytest.mark.parametrize(("size", "name"), [(0, "metrics.jsonl"), (200, "tensorboard/train")])
    def test_full_disk_is_reported_and_the_run_can_resume(self, tmp_path, size, name):
        log = RunLog(str(tmp_path), total_steps=60)
        with (
            file_size_limit(size),
            pytest.raises(WriteError, match=f"{tmp_path / name} ") as raised,
        ):
            log.train(10, {"loss": 2.5}, count=80)
        assert "\n" not in str(raised.value)
        with file_size_limit(size):
            log.close()
        log = RunLog(str(tmp_path), total_steps=60)
        log.train(10, {"loss": 2.5}, count=80)
        log.close()
        assert [record["step"] for record in read_metrics(tmp_path)] == [10]
        assert read_scalars(tmp_path / "tensorboard" / "train")["loss", 10] == 2.5


def test_rates_exclude_pauses(tmp_path):
    clock = Clock()
    log = RunLog(str(tmp_path), total_steps=100, start_step=50, clock=clock)
    clock.now += 3.0
    with log.pause():
        clock.now += 500.0
    clock.now += 1.0
    log.train(60, {}, count=24)
    log.close()
    (record,) = read_metrics(tmp_path)
    assert (record["examples_per_second"], record["steps_per_second"]) == (6.0, 2.5)


def test_rates_do_not_depend_on_the_time_of_day(tmp_path, monkeypatch):
    log = RunLog(str(tmp_path), total_steps=100)
    monkeypatch.setattr(time, "time", lambda: 1000.0)  # the clock is set back
    with log.pause():
        pass
    time.sleep(0.01)
    log.train(10, {}, count=20)
    log.close()
    (record,) = read_metrics(tmp_path)
    assert 0 < record["examples_per_second"] <= 2000


def test_one_line_per_interval_without_a_terminal(tmp_path, monkeypatch, capsys):
    lines, clock = [], Clock()
    monkeypatch.setattr(logging, "info", lambda text, *args: lines.append(text % args))
    log = RunLog(str(tmp_path), total_steps=600, start_step=40, metric="f1", clock=clock)
    clock.now += 4.0
    log.advance(45)
    log.train(50, {"loss": 0.25, "learning_rate": 1.5e-5}, count=80)
    log.evaluation(50, {"eval_accuracy": 0.5, "f1_a": 1.0, "f1": 0.75, "loss": 2}, is_best=True)
    log.evaluation(60, {"loss": 0.5, **{f"{name}_{'long_' * 9}accuracy": 0.5 for name in "abc"}})
    log.close()
    assert lines == [
        "step  50/600   loss 0.2500   20.0 examples/s   03:40 left",
        "eval  50/600   loss 2.0000   f1 0.7500   accuracy 0.5000   best",
        f"eval  60/600   loss 0.5000   a {'long ' * 9}accuracy 0.5000",
    ]
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("drawn")
class TestCurves:
    def test_are_drawn_every_half_minute_and_at_the_end(self, tmp_path):
        now = [100.0]
        log = RunLog(str(tmp_path), total_steps=60, clock=lambda: now[0])
        path = tmp_path / "training_curves.png"
        log.train(10, {"loss": 1.0}, count=8)
        now[0] = 129.0
        log.evaluation(10, {"eval_accuracy": 0.5})
        assert not path.exists()
        now[0] = 130.0
        log.evaluation(12, {"eval_accuracy": 0.5})
        before = imread(path)
        path.unlink()
        now[0] = 159.0
        log.evaluation(14, {"eval_accuracy": 0.5})
        assert not path.exists()
        log.train(20, {"loss": 0.5, "learning_rate": 0.1}, count=8)
        log.close()
        assert imread(path).shape[0] == 2 * before.shape[0]  # twice as many panels
        assert not [p for p in tmp_path.iterdir() if "tmp" in p.name]

    def test_have_the_name_and_settings_of_the_run(self, tmp_path, monkeypatch):
        drawn = []

        def draw(*args):
            drawn.append(args)
            return b"-"

        monkeypatch.setattr(run_log, "draw_curves", draw)
        log = RunLog(str(tmp_path / "tuned") + "/", total_steps=6)
        log.write_config({"optimizer": {"num_warmup_steps": 2}})
        log.train(3, {"loss": 1.0}, count=8)
        log.close()
        assert drawn == [(log.records, "tuned", {"optimizer": {"num_warmup_steps": 2}})]
        RunLog(log.output_dir, total_steps=6, start_step=3).close()
        assert len(drawn) == 1  # nothing is new


def test_the_time_per_step_is_logged_after_the_first_steps(tmp_path, caplog):
    clock = Clock()
    with caplog.at_level("INFO", logger="absl"):
        log = RunLog(str(tmp_path), total_steps=60, start_step=20, clock=clock)
        for step in range(21, 31):
            clock.now += 40.0 if step == 21 else 0.4  # the first step is slower
            log.advance(step)
        assert caplog.messages == ["step 24/60   0.4 s per step   00:14 left"]
        caplog.clear()
        log.train(30, {"loss": 1.0}, count=80)
        log.close()
        # A report that comes earlier contains the same information.
        log = RunLog(str(tmp_path), total_steps=60, start_step=30, clock=clock)
        log.train(31, {"loss": 1.0}, count=8)
        clock.now += 40.0
        log.advance(32)
        log.close()
    assert not any("per step" in message for message in caplog.messages)
    assert [record["step"] for record in read_metrics(tmp_path)] == [30, 31]
