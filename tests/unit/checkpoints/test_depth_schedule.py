"""Training with fewer layers first: what a schedule says, and that steps do it."""

import json

import numpy as np
import pytest

from albert_tf.checkpoints.depth_schedule import DepthSchedule
from albert_tf.config import OptimizerConfig
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.training import run_log
from tests.small_model import dropping_config, encoder_inputs, small_config
from tests.small_records import pretraining_columns, write_records
from tests.small_training import assert_same_state, make_task, make_trainer, state_of, train

SHARED = {"num_hidden_groups": 1, "num_hidden_layers": 6}


def parse(text, **config):
    return DepthSchedule.parse(text, small_config(**{**SHARED, **config}))


class TestSchedule:
    def test_gives_the_layers_of_steps_and_checkpoints(self):
        schedule = parse("2:0,4:20,6:35")
        assert schedule.changes
        assert str(schedule) == "2:0,4:20,6:35"
        assert [schedule.at(step) for step in (0, 19, 20, 34, 35, 99)] == [2, 2, 4, 4, 6, 6]
        # A checkpoint of 20 steps was last trained by step 19, counted from 0.
        assert [schedule.of_checkpoint(step) for step in (0, 20, 21, 36)] == [2, 2, 4, 6]

    def test_without_one_all_layers_are_applied(self):
        schedule = parse("", num_hidden_groups=3)
        assert not schedule.changes
        assert (schedule.at(0), schedule.steps_left(7, 50)) == (6, 43)
        assert not parse("6:0", num_hidden_groups=3).changes

    def test_deeper_steps_count_more(self):
        schedule = parse("2:0,4:20,6:35")
        assert schedule.steps_left(10, 40) == (2 * 10 + 4 * 15 + 6 * 5) / 2
        assert schedule.steps_left(20, 40) == (4 * 15 + 6 * 5) / 2
        assert schedule.steps_left(30, 40) == (4 * 5 + 6 * 5) / 4
        assert schedule.steps_left(39, 40) == 1

    @pytest.mark.parametrize(
        ("text", "config", "received"),
        [
            ("6", {}, "=6"),
            ("2:0;6:5", {}, "2:0;6:5"),
            ("-2:0,6:5", {}, "-2:0"),
            ("2:0,6:5,", {}, "6:5,"),
            ("2:1,6:5", {}, "2:1"),
            ("0:0,6:5", {}, "0:0"),
            ("2:0,4:5,6:5", {}, "4:5,6:5"),
            ("2:0,2:5,6:7", {}, "2:5"),
            ("4:0,2:5,6:7", {}, "2:5"),
            ("2:0,5:5", {}, "num_hidden_layers=6"),
            ("2:0,6:5", {"num_hidden_groups": 2}, "num_hidden_groups=2"),
            ("2:0,6:5", {"parameter_sharing": "ffn"}, "'ffn'"),
            ("2:0,6:5", {"parameter_sharing": "none"}, "'none'"),
        ],
    )
    def test_what_cannot_be_is_refused(self, text, config, received):
        with pytest.raises(ValueError, match="--depth_schedule") as raised:
            parse(text, **config)
        assert received in str(raised.value)

    def test_an_end_before_all_layers_is_warned_of(self, caplog):
        parse("2:0,6:5").warn_of_end(OptimizerConfig(num_train_steps=6))
        assert not caplog.records
        parse("2:0,6:5").warn_of_end(OptimizerConfig(num_train_steps=5))
        assert "2 of 6 layers" in caplog.text

    def test_steps_that_were_taken_bind(self):
        earlier = parse("2:0,4:5,6:9")
        parse("2:0,4:5,5:7,6:20").check_continues(earlier, 7, "run")
        parse("3:0,6:9").check_continues(earlier, 0, "run")
        for other, step in (("2:0,4:6,6:9", 6), ("2:0,4:5,6:8", 9), ("3:0,6:9", 1), ("", 3)):
            with pytest.raises(ValueError, match=r"--depth_schedule=2:0,4:5,6:9") as raised:
                parse(other).check_continues(earlier, step, "run")
            assert parse(other).as_flag() in str(raised.value)
            parse(other).check_continues(earlier, 0, "run")

    def test_the_record_of_a_run_tells_its_schedule(self, tmp_path):
        def recorded(trainer):
            content = {"config": {"trainer": trainer}}
            (tmp_path / "run_config.json").write_text(json.dumps(content))
            return DepthSchedule.recorded(str(tmp_path), small_config(**SHARED))

        assert DepthSchedule.recorded(str(tmp_path), small_config(**SHARED)) is None
        assert str(recorded({"depth_schedule": "2:0,6:5"})) == "2:0,6:5"
        assert not recorded({}).changes
        assert recorded("text") is None
        for other in ("2:0,5:5", [2, 0], 7):
            assert recorded({"depth_schedule": other}) is None


def test_an_encoder_at_a_depth_is_one_of_so_many_layers():
    """Inner groups are two, so that layers are not block runs."""
    deep, shallow = (
        AlbertEncoder(small_config(num_hidden_layers=n, num_hidden_groups=1)) for n in (5, 2)
    )
    shallow.set_weights(deep.get_weights())
    inputs = encoder_inputs()
    with deep.at_depth(2):
        outputs = deep(inputs, output_attentions=True)
    assert len(outputs["encoder_outputs"]) == len(outputs["attention_probs"]) == 4
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(outputs[name], shallow(inputs)[name])
    with deep.at_depth(2), deep.at_depth(None):
        assert len(deep(inputs)["encoder_outputs"]) == 10
    assert len(deep(inputs)["encoder_outputs"]) == 10


LAYERS, CHANGE, LAST = 2, 4, 7
WAYS = {
    "plain": {},
    "replicas": {"remat": True, "gradient_accumulation_steps": 2, "replicas": 2},
    "compiled": {"jit_compile": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_training_is_a_shallow_one_that_goes_on_deeper(tmp_path, monkeypatch, way):
    """And one that is broken off before the change resumes bit-exactly across it."""
    monkeypatch.setattr(run_log, "draw_curves", lambda records: b"")  # a picture takes a second
    records = write_records(tmp_path / "records", pretraining_columns(13, seed=1))

    def trained(folder, layers, last, **config):
        shared = {"num_hidden_groups": 1, "inner_group_num": 1}
        task = make_task(records, config=dropping_config(num_hidden_layers=layers, **shared))
        # The rate does not depend on where the training ends.
        rate = {"num_warmup_steps": 2, "poly_power": 0.0}
        config = {**WAYS[way], **config, "log_steps": 3}
        return train(make_trainer(tmp_path / folder, task, last, optimizer=rate, **config))

    def recorded(folder, key):
        lines = (tmp_path / folder / "metrics.jsonl").read_text().splitlines()
        return {record["step"]: record[key] for record in map(json.loads, lines)}

    trained("by_hand", 1, CHANGE)
    by_hand = trained("by_hand", LAYERS, LAST)
    schedule = {"depth_schedule": f"1:0,{LAYERS}:{CHANGE}"}
    assert trained("run", LAYERS, 3, **schedule).step == 3
    assert_same_state(trained("run", LAYERS, LAST, **schedule), state_of(by_hand))
    assert recorded("run", "depth") == {3: 1, CHANGE: 1, 6: LAYERS, LAST: LAYERS}
    assert recorded("run", "loss") == recorded("by_hand", "loss")
