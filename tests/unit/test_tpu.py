"""Programs for TPU cores, traced without a TPU.

In a graph of TensorFlow 1, variables need no device, so a `TPUStrategy` can be created for cores
that do not exist.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.distribute import distribute_utils
from tensorflow.python.tpu import tpu_system_metadata

from albert_tf.finetuning.predictor import INPUTS, Predictor
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.step import TrainingStep
from tests.small_model import ONE_BLOCK, dropping_config
from tests.small_records import LENGTH, PREDICTIONS, pretraining_batch

CONFIG = dropping_config(**ONE_BLOCK)
ROWS = 2  # of one core


def tpu_strategy(cores):
    host = "/job:localhost/replica:0/task:0/device"
    devices = [
        session._DeviceAttributes(f"{host}:{kind}:{number}", kind, 0, 0)
        for kind, count in (("TPU", cores), ("CPU", 1))
        for number in range(count)
    ]
    metadata = tpu_system_metadata.TPUSystemMetadata(cores, 1, cores, None, devices)
    resolver = SimpleNamespace(get_tpu_system_metadata=lambda: metadata, cluster_spec=lambda: None)
    return tf.distribute.TPUStrategy(resolver)


def make_task():
    return PretrainingTask(
        CONFIG,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        use_one_hot_embeddings=True,
    )


def batch_of(cores, steps=0):
    """Returns a batch, split over the cores; with `steps`, this number of stacked batches."""
    batch = dict(pretraining_batch(ROWS * cores, seed=1))
    if cores > 1:
        batch = {
            name: distribute_utils.regroup(tf.split(values, cores), always_wrap=True)
            for name, values in batch.items()
        }
    if not steps:
        return batch
    return tf.nest.map_structure(lambda x: tf.stack([x] * steps), batch, expand_composites=True)


def step(cores, steps=0, **settings):
    config = TrainerConfig("unused", ROWS * cores, precision="bfloat16", **settings)
    training = TrainingStep(make_task(), config, OptimizerConfig("lamb"), tpu_strategy(cores))
    function = training.updates if steps else training.update
    return function.get_concrete_function(batch_of(cores, steps)).graph


def evaluation(cores):
    strategy, task = tpu_strategy(cores), make_task()
    with strategy.scope():
        model = task.build_model()
    evaluator = Evaluator(task, model, strategy, ROWS * cores)
    return evaluator._sums.get_concrete_function(batch_of(cores)).graph


def prediction(cores):
    strategy = tpu_strategy(cores)
    with strategy.scope():
        model = AlbertForClassification(CONFIG, num_labels=3, use_one_hot_embeddings=True)
    predictor = Predictor(
        model, strategy, max_seq_length=LENGTH, tokens_per_batch=LENGTH * ROWS * cores
    )
    outputs = predictor._start(dict.fromkeys(INPUTS, np.ones([1, LENGTH], np.int32)))
    assert outputs["logits"].shape == (ROWS * cores, 3)
    return outputs["logits"].graph


PROGRAMS = {
    "step": (step, {}),
    "accumulation": (step, {"gradient_accumulation_steps": 2}),
    "remat": (step, {"remat": True}),
    "xla": (step, {"jit_compile": True}),
    "loop": (step, {"steps": 2}),
    "all": (step, {"gradient_accumulation_steps": 2, "remat": True, "steps": 2}),
    "evaluation": (evaluation, {}),
    "prediction": (prediction, {}),
}


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        *((name, 2) for name in ("all", "evaluation", "prediction")),
        pytest.param("step", 1, marks=pytest.mark.slow),
        *(pytest.param(name, 8, marks=pytest.mark.slow) for name in PROGRAMS),
    ],
)
def test_programs_for_tpus_have_static_shapes(name, cores):
    trace, settings = PROGRAMS[name]
    with tf.Graph().as_default():
        graph = trace(cores, **settings).as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    operations = [node.op for node in nodes]
    assert operations.count("TPUReplicateMetadata") == 1
    assert "XlaSetDynamicDimensionSize" not in operations
