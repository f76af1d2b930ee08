"""The training step compiles into one XLA program with static shapes, as TPUs require."""

import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.pretraining.task import PretrainingTask
from albert_tf.squad.task import SquadTask
from albert_tf.training import step
from albert_tf.training.evaluation import pad_batch
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.strategies import create_strategy
from albert_tf.training.trainer import Trainer
from tests.small_model import ONE_BLOCK, dropping_config
from tests.small_records import LENGTH, PREDICTIONS, pretraining_batch

BATCH = 6
CONFIG = dropping_config(**ONE_BLOCK)
HLO_OPERATIONS = {"dot": {"bf16"}, "exponential": {"f32"}, "log": {"f32"}, "reduce": {"f32"}}
HLO_OPERATIONS |= {"rsqrt": {"f32"}}


def spans():
    """Returns a batch whose last row is padding."""
    ids = np.random.default_rng(1).integers(5, 31, (BATCH, LENGTH))
    features = {"input_ids": ids, "input_mask": ids % 4 > 0, "segment_ids": ids % 2}
    places = tf.constant([0, 3, 7, 10, 2, 0])
    return {
        **{name: tf.constant(values.astype(np.int32)) for name, values in features.items()},
        "example_weights": tf.constant([1.0, 1, 1, 1, 1, 0]),
        "start_positions": places // 2,
        "end_positions": places,
        "is_impossible": tf.constant([1.0, 0, 0, 0, 0, 0]),
    }


JOBS = {
    "pretraining": lambda: (
        PretrainingTask(CONFIG, max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS),
        pad_batch(pretraining_batch(5, seed=2), BATCH),
    ),
    "span beams": lambda: (SquadTask(CONFIG, 2, max_seq_length=LENGTH), spans()),
}


@pytest.mark.parametrize("job", ["pretraining", pytest.param("span beams", marks=pytest.mark.slow)])
def test_training_step_is_one_program_with_static_shapes(job, tmp_path, monkeypatch):
    monkeypatch.setattr(step, "device_type", lambda strategy: "TPU")
    task, batch = JOBS[job]()
    trainer = Trainer(
        task,
        TrainerConfig(
            str(tmp_path),
            BATCH,
            precision="bfloat16",
            jit_compile=True,
            gradient_accumulation_steps=3,
        ),
        OptimizerConfig("lamb", 5e-5, 9, 0),
        create_strategy("one_device"),
    )
    program = trainer.train_step.experimental_get_compiler_ir(batch)(stage="hlo")
    assert "<=" not in program  # dynamic sizes
    assert re.search(r"\bwhile\(", program)  # over micro-batches
    assert "custom-call" not in program  # operations on the host
    (entry,) = re.findall(r"entry_computation_layout=\{.*->(.*)\}", program)
    # The program also returns updated weights, moments and the step.
    function = trainer.train_step.get_concrete_function(batch)
    reported = tf.nest.flatten(function.structured_outputs)
    updated = 3 * len(trainer.model.trainable_variables) + 1
    assert entry.count("[") == updated + len(reported)
    # By default, a graph's loop runs up to ten micro-batches at once.
    definition = function.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    loops = [node for node in nodes if node.op in ("While", "StatelessWhile")]
    assert [loop.attr["parallel_iterations"].i for loop in loops] == [1]
    # Only products are in bfloat16.
    types = {op: set(re.findall(rf"= (\w+)\[[^=]* {op}\(", program)) for op in HLO_OPERATIONS}
    assert types == HLO_OPERATIONS
