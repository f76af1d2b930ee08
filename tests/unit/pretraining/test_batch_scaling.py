import pytest

from albert_tf.pretraining.batch_scaling import scale_to_batch_size, scaling_advice, scaling_report
from albert_tf.training.settings import OptimizerConfig

GIVEN = OptimizerConfig(
    learning_rate=0.004,
    num_train_steps=1001,
    num_warmup_steps=30,
    start_warmup_step=7,
    num_decay_steps=100,
)


def test_settings_are_scaled():
    used = scale_to_batch_size(GIVEN, batch_size=64, reference=1024)
    assert used.learning_rate == pytest.approx(0.001)
    assert (used.num_train_steps, used.num_warmup_steps) == (16016, 30)
    assert (used.start_warmup_step, used.num_decay_steps) == (112, 1600)
    assert (used.optimizer, used.poly_power) == (GIVEN.optimizer, GIVEN.poly_power)
    used = scale_to_batch_size(GIVEN, batch_size=2250, reference=1000)
    assert used.learning_rate == pytest.approx(0.006)
    assert (used.num_train_steps, used.num_warmup_steps) == (445, 30)
    assert scale_to_batch_size(OptimizerConfig(), 10**9, 1).num_train_steps == 1
    assert scale_to_batch_size(GIVEN, 48, 48) == GIVEN


def test_report():
    used = scale_to_batch_size(GIVEN, 64, 1024)
    text = "\n".join(scaling_report(GIVEN, used, 64, 1024))
    for part in (
        "`scale_from_batch_size`=1024 ",
        "`learning_rate`=0.004 becomes 0.001",
        "`num_warmup_steps`=30 ",
        "`num_decay_steps`=100 becomes 1600",
    ):
        assert part in text
    assert "adamw" not in text
    adamw = OptimizerConfig(optimizer="adamw")
    assert "`optimizer`=adamw" in scaling_report(adamw, adamw, 9, 9)[-1]


def test_advice_if_only_the_batch_size_differs():
    advice = scaling_advice(OptimizerConfig(), 64)
    assert advice is not None
    assert "`scale_from_batch_size`=4096 would train at 0.00022 for 8000000 steps" in advice
    assert scaling_advice(OptimizerConfig(), 4096) is None
    assert scaling_advice(OptimizerConfig(learning_rate=0.001), 64) is None
    assert scaling_advice(OptimizerConfig(optimizer="adamw"), 64) is None
