import pytest

from albert_tf.config import OptimizerConfig
from albert_tf.pretraining.run import scale_to_batch_size, scaling_advice, scaling_report

GIVEN = OptimizerConfig(
    learning_rate=0.004,
    num_train_steps=1001,
    num_warmup_steps=30,
    start_warmup_step=7,
    num_decay_steps=100,
)


def test_a_smaller_batch_takes_more_steps_at_a_lower_rate():
    used = scale_to_batch_size(GIVEN, batch_size=64, reference=1024)
    assert used.learning_rate == pytest.approx(0.001)
    steps = used.num_train_steps, used.num_warmup_steps, used.start_warmup_step
    assert steps == (16016, 30, 112)
    assert used.num_decay_steps == 1600
    assert (used.optimizer, used.poly_power) == (GIVEN.optimizer, GIVEN.poly_power)


def test_a_larger_batch_takes_fewer_steps_at_a_higher_rate_and_the_same_as_many():
    used = scale_to_batch_size(GIVEN, batch_size=2250, reference=1000)
    assert used.learning_rate == pytest.approx(0.006)
    assert (used.num_train_steps, used.num_warmup_steps) == (445, 30)
    assert scale_to_batch_size(OptimizerConfig(), 10**9, 1).num_train_steps == 1
    assert scale_to_batch_size(GIVEN, 48, 48) == GIVEN


def test_the_report_names_what_was_given_what_is_used_and_why():
    used = scale_to_batch_size(GIVEN, 64, 1024)
    text = "\n".join(scaling_report(GIVEN, used, 64, 1024))
    assert "--scale_from_batch_size=1024 " in text
    assert "--train_batch_size=64;" in text
    assert "--learning_rate=0.004 becomes 0.001: times the square root of 64/1024" in text
    assert "--num_train_steps=1001 becomes 16016: times 1024/64" in text
    assert "--num_warmup_steps=30 stays as it is" in text
    assert "--start_warmup_step=7 becomes 112" in text
    assert "--num_decay_steps=100 becomes 1600" in text
    assert "adamw" not in text
    adamw = OptimizerConfig(optimizer="adamw")
    assert "No rule was published for --optimizer=adamw" in scaling_report(adamw, adamw, 9, 9)[-1]


def test_advice_is_given_to_the_published_rate_with_another_batch_alone():
    advice = scaling_advice(OptimizerConfig(), 64)
    assert advice is not None
    assert "--scale_from_batch_size=4096 would train at 0.00022 for 8000000 steps" in advice
    assert "3125 of them warm-up" in advice
    assert "\n" not in advice
    assert scaling_advice(OptimizerConfig(), 4096) is None
    assert scaling_advice(OptimizerConfig(learning_rate=0.001), 64) is None
    assert scaling_advice(OptimizerConfig(optimizer="adamw"), 64) is None
