"""Training tasks of three jobs: batches, losses, metrics and resuming."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.classification.task import ClassificationTask, TextFeatures
from albert_tf.data.sequences import TokenSequences
from albert_tf.labels import Labels
from albert_tf.modeling import ops_fused
from albert_tf.modeling.original_names import original_names
from albert_tf.multiple_choice.task import ChoiceFeatures, MultipleChoiceTask
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.task import SquadTask
from albert_tf.training.optimization import create_optimizer
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.step import TrainingStep
from albert_tf.training.strategies import create_strategy, split_batch
from albert_tf.training.trainer import Trainer, TrainingDivergedError
from tests import small_training
from tests.small_model import dropping_config, small_config
from tests.small_training import restarted

pytestmark = pytest.mark.usefixtures("eager")

LENGTH, CHOICES, MARK = 13, 3, 5
LABELS = {"classes": Labels(("no", "maybe", "yes")), "number": Labels()}
VERSIONS = {"spans": 1, "beams": 2}
ONE_BLOCK = {
    "num_hidden_layers": 1,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "type_vocab_size": 2,
}
DROPPING, PLAIN = dropping_config(**ONE_BLOCK), small_config(**ONE_BLOCK)
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
# Further columns of a batch, and metrics.
COLUMNS = {
    "classes": ({"label_ids"}, {"accuracy"}),
    "number": ({"label_ids"}, set()),
    "spans": ({"start_positions", "end_positions"}, {"start_accuracy", "end_accuracy"}),
    "beams": (
        {"start_positions", "end_positions", "is_impossible"},
        {"start_accuracy", "end_accuracy", "answerability_accuracy"},
    ),
    "choices": ({"label_ids"}, {"accuracy"}),
}
EVERY_TASK = pytest.mark.parametrize("name", COLUMNS)


def texts(labels, count=29):
    """Returns ragged sequences whose first token determines the label."""
    random = np.random.default_rng(1)
    lengths = random.integers(3, LENGTH + 1, count)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(5, 31, starts[-1], dtype=np.int32)
    tokens[starts[:-1]] = random.integers(0, 3, count)
    label_ids = tokens[starts[:-1]].copy()
    if labels.is_regression:
        label_ids = label_ids.astype(np.float32) / 2
    sequences = TokenSequences(tokens, starts, random.integers(1, lengths + 1).astype(np.int32))
    return TextFeatures(sequences, label_ids, [f"train-{i}" for i in range(count)])


def windows(count=29):
    """Returns windows whose answer is the token MARK; every third window has no answer."""
    random = np.random.default_rng(1)
    questions = random.integers(1, 4, count)
    contexts = random.integers(2, LENGTH - 3 - questions + 1)
    lengths = questions + contexts + 3
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(MARK + 1, 31, starts[-1], dtype=np.int32)
    answers = questions + 2 + random.integers(0, contexts)
    is_impossible = np.arange(count) % 3 == 1
    answers[is_impossible] = 0
    tokens[(starts[:-1] + answers)[~is_impossible]] = MARK
    positions = answers.astype(np.int32)
    numbers = np.arange(count, dtype=np.int32)
    return SquadFeatures(
        sequences=TokenSequences(tokens, starts, (questions + 2).astype(np.int32)),
        question_indices=numbers,
        paragraph_indices=numbers,
        window_starts=0 * numbers,
        token_starts=np.zeros(contexts.sum(), np.int32),
        token_ends=np.zeros(contexts.sum(), np.int32),
        paragraph_offsets=np.concatenate([[0], np.cumsum(contexts)]),
        start_positions=positions,
        end_positions=positions.copy(),
        is_impossible=is_impossible,
    )


def questions(count=29):
    """Returns questions with 2 or more options; the correct option begins with MARK."""
    random = np.random.default_rng(1)
    counts = random.integers(2, CHOICES + 1, count).astype(np.int32)
    is_there = np.arange(CHOICES) < counts[:, None]
    lengths = np.where(is_there, random.integers(3, LENGTH + 1, is_there.shape), 0).ravel()
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(MARK + 1, 31, starts[-1], dtype=np.int32)
    label_ids = random.integers(0, counts, dtype=np.int32)
    tokens[starts[np.arange(count) * CHOICES + label_ids]] = MARK
    return ChoiceFeatures(
        sequences=TokenSequences(tokens, starts, (lengths // 2).astype(np.int32)),
        choice_counts=counts,
        label_ids=label_ids,
        example_ids=[f"train-{i}" for i in range(count)],
        levels=[""] * count,
    )


def some_features(name):
    if name in LABELS:
        return texts(LABELS[name])
    return windows() if name in VERSIONS else questions()


def make_task(name="classes", features=None, config=PLAIN, **options):
    features = some_features(name) if features is None else features
    if name in LABELS:
        return ClassificationTask(config, LABELS[name], features, max_seq_length=LENGTH, **options)
    if name in VERSIONS:
        return SquadTask(config, VERSIONS[name], features, max_seq_length=LENGTH, **options)
    return MultipleChoiceTask(config, features, max_seq_length=LENGTH, **options)


def without_dropout(name):
    return {"classifier_dropout_prob" if name in LABELS else "dropout_prob": 0.0}


def make_trainer(folder, task, replicas=1, last_step=6, seed=5, micro_batches=1, **settings):
    config = TrainerConfig(
        str(folder),
        train_batch_size=4,
        save_checkpoints_steps=2,
        keep_checkpoint_max=0,
        seed=seed,
        gradient_accumulation_steps=micro_batches,
    )
    optimizer_config = OptimizerConfig(
        **{"optimizer": "adamw", "learning_rate": 5e-5, "num_warmup_steps": 0, **settings},
        num_train_steps=last_step,
    )
    strategy = create_strategy("one_device" if replicas == 1 else "mirrored")
    return Trainer(task, config, optimizer_config, strategy)


def train(folder, task, replicas=1, **settings):
    """Trains or resumes, and returns the trainer."""
    return small_training.train(make_trainer(folder, task, replicas, **settings))


def weights(trainer):
    return {name: v.numpy() for name, v in original_names(trainer.model).items()}


@EVERY_TASK
def test_losses_and_metrics_of_a_batch(name):
    """Examples with weights 1 and 2 have the same loss as three rows."""
    columns, metrics = COLUMNS[name]
    task = make_task(name)
    batch = next(iter(task.train_dataset(4, seed=3)))
    rows = {key for key, values in batch.items() if values.shape == (4,)}
    assert rows == columns | {"example_weights"}
    if "label_ids" in columns:
        assert batch["label_ids"].dtype == (tf.float32 if name == "number" else tf.int32)
    assert batch["input_ids"].shape[:-1] == ((4, CHOICES) if name == "choices" else (4,))
    batch["example_weights"] = tf.constant([1.0, 0.0, 0.0, 2.0])
    outputs = task.build_model()(batch)
    losses = task.losses(outputs, batch)
    assert {key: loss.weight for key, loss in losses.items()} == task.loss_weights(batch)
    tensors = {key: x for key, x in {**outputs, **batch}.items() if tf.is_tensor(x)}
    of_rows = {key: tf.gather(x, [0, 3, 3]) for key, x in tensors.items()}
    of_rows["example_weights"] = tf.ones(3)
    alone = task.total_loss(task.losses(of_rows, of_rows))
    np.testing.assert_allclose(task.total_loss(losses), alone, rtol=1e-5, atol=1e-7)
    assert task.metrics(outputs, batch).keys() == metrics


def test_metrics_count_what_is_right():
    task = make_task("beams")
    outputs = {
        "start_log_probs": tf.constant([[0.0, -9], [-9, 0], [0, -9]]),
        "end_log_probs": tf.constant([[0.0, -9], [0, -9], [0, -9]]),
        "cls_logits": tf.constant([0.3, -0.2, 0.1]),
    }
    features = {
        "start_positions": tf.constant([0, 1, 1]),
        "end_positions": tf.constant([1, 1, 0]),
        "is_impossible": tf.constant([1.0, 0.0, 0.0]),
        "example_weights": tf.constant([1.0, 2.0, 0.5]),
    }
    hits = {name: float(x.sum) for name, x in task.metrics(outputs, features).items()}
    assert hits == {"start_accuracy": 3.0, "end_accuracy": 0.5, "answerability_accuracy": 3.0}


def test_padding_does_not_change_the_loss_of_version_2():
    """Version 1 also chooses among padding, as in the original."""
    for name in VERSIONS:
        short, long = (
            next(iter(make_task(name, padding=padding).train_dataset(3, seed=8)))
            for padding in ("longest", "max")
        )
        for key in ("input_ids", "input_mask", "segment_ids"):
            long[key] = tf.pad(long[key], [[0, 0], [0, 2]])
        task = make_task(name)
        model = task.build_model()
        losses = [float(task.total_loss(task.losses(model(x), x))) for x in (short, long)]
        assert (abs(losses[0] - losses[1]) < 1e-5) == (name == "beams")


@pytest.mark.parametrize(
    ("replicas", "is_fused"),
    [
        pytest.param(1, False, marks=pytest.mark.slow),
        (1, True),
        pytest.param(2, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("traced")
def test_a_resumed_run_gives_the_same_weights_with_one_graph(
    replicas, is_fused, tmp_path, monkeypatch
):
    if is_fused:
        monkeypatch.setattr(ops_fused, "_MIN_ELEMENTS", 0)
    run, copy = tmp_path / "run", tmp_path / "copy"
    task = make_task(config=DROPPING)
    lengths = {batch["input_ids"].shape[1] for batch in task.train_dataset(4, seed=3).take(6)}
    assert len(lengths) == 2
    trainer = train(run, task, replicas, seed=3)
    unbroken = weights(trainer)
    shutil.copytree(run, copy)
    for path in copy.glob("*-6*"):
        path.unlink()
    (copy / "checkpoint").unlink()
    resumed = weights(small_training.train(restarted(trainer, copy)))
    for name, expected in unbroken.items():
        np.testing.assert_array_equal(resumed[name], expected, err_msg=name)
    # A graph for one length would round differently, so a resumed run would differ.
    assert trainer.train_step.experimental_get_tracing_count() == 1
    # Other lengths do not cause a trace each.
    batch = next(iter(task.train_dataset(4, seed=3)))
    for length in (5, 6):
        assert length not in lengths
        shorter = {
            name: values[:, :length] if values.shape.rank == 2 else values
            for name, values in batch.items()
        }
        trainer.train_step.get_concrete_function(split_batch(trainer.strategy, shorter))
    assert trainer.train_step.experimental_get_tracing_count() <= 2


@pytest.mark.parametrize("micro_batches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_pooler_of_spans_has_no_moments(micro_batches, tmp_path):
    """The pooler has no gradient, as in the original."""
    fresh = weights(make_trainer(tmp_path, make_task("spans")))
    trainer = train(tmp_path, make_task("spans"), last_step=2, micro_batches=micro_batches)
    stored = open_weights(str(tmp_path / "model.ckpt-2"))
    moments = {f"{name}/{slot}" for name in fresh.keys() - POOLER for slot in ("adam_m", "adam_v")}
    assert stored.keys() == fresh.keys() | moments | {"global_step"}
    for name in POOLER:
        np.testing.assert_array_equal(weights(trainer)[name], fresh[name])


@EVERY_TASK
def test_the_description_of_the_input_depends_on_its_content(name):
    def description(features=None, **options):
        return make_task(name, features, **options).describe_input()

    first = description()
    assert first == description()
    assert first["examples"] == 29
    for change in ("tokens", "first_lengths", *COLUMNS[name][0]):
        changed = some_features(name)
        array = getattr(changed, change, None)
        array = getattr(changed.sequences, change) if array is None else array
        array[7] = not array[7] if array.dtype == bool else array[7] - 1 if array[7] else 1
        assert description(changed)["digest"] != first["digest"], change
    assert description(padding="max") != first
    if name == "classes":
        features = some_features(name)
        floats = TextFeatures(features.sequences, features.label_ids.astype("f4"), features.guids)
        assert description(floats)["digest"] != first["digest"]


def test_errors_of_diverged_runs_name_the_settings(tmp_path):
    features = some_features("number")
    features.label_ids[:] = np.inf
    with pytest.raises(TrainingDivergedError, match="a longer warm-up"):
        train(tmp_path, make_task("number", features), last_step=2)


def test_lengths_beyond_the_positions_of_the_model_are_rejected():
    with pytest.raises(ValueError, match="`max_seq_length`"):
        MultipleChoiceTask(PLAIN, max_seq_length=17)


OUTPUTS_OF = {
    "spans": {"start_logits": "start_positions", "end_logits": "end_positions"},
    "beams": {
        "start_log_probs": "start_positions",
        "end_log_probs": "end_positions",
        "cls_logits": "is_impossible",
    },
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "classes" else pytest.mark.slow) for name in COLUMNS],
)
def test_fit_gives_the_weights_of_the_trainer(name, tmp_path):
    task = make_task(name, **without_dropout(name))
    trainer = make_trainer(tmp_path, task, learning_rate=0.001)
    trainer.initialize()
    model = trainer.task.build_model()
    for ours, theirs in zip(model.variables, trainer.model.variables, strict=True):
        ours.assign(theirs)
    batches = [*trainer.task.train_dataset(4, seed=5).take(3)]
    for batch in batches:
        trainer.train_step(split_batch(trainer.strategy, batch))

    labels = OUTPUTS_OF.get(name, {"logits": "label_ids"})

    def data():
        for batch in batches:
            y = {output: batch[feature] for output, feature in labels.items()}
            yield batch, y, dict.fromkeys(labels, batch["example_weights"])

    model.compile(create_optimizer(trainer.optimizer_config), loss=model.default_loss())
    initial = {path: variable.numpy() for path, variable in original_names(model).items()}
    model.fit(data(), steps_per_epoch=len(batches), verbose=0)
    for (path, ours), theirs in zip(
        original_names(model).items(), original_names(trainer.model).values(), strict=True
    ):
        if path in ("start_logits/dense/bias", "end_logits/dense_1/bias"):
            continue  # the gradient is 0 except for rounding, which Adam amplifies
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6, err_msg=path)
        if ours.trainable and len(ours.shape) > 1:
            assert np.abs(ours.numpy() - initial[path]).max() > 1e-4, path


@pytest.mark.parametrize(
    ("optimizer", "scale"),
    [("adamw", (50.0, 32.0)), pytest.param("lamb", (-3e-4, 1e-6), marks=pytest.mark.slow)],
)
def test_a_regression_is_trained_on_standardized_labels(optimizer, scale, tmp_path):
    """Numbers of any unit give the same training. The head predicts in the unit of the labels."""
    mean, deviation = scale
    features = texts(LABELS["number"])
    labels = features.label_ids.astype(np.float64) * deviation + mean
    other = dataclasses.replace(features, label_ids=labels.astype(np.float32))
    results = []
    for part, known in ((features, None), (other, scale)):
        task = make_task("number", part, config=DROPPING, scale=known)
        config = TrainerConfig(str(tmp_path), 4, seed=5)
        step = TrainingStep(
            task, config, OptimizerConfig(optimizer, 0.01, 9, 0), create_strategy("one_device")
        )
        batches = iter(task.train_dataset(4, 7))
        losses = [
            step.update(split_batch(step._strategy, next(batches)))["sums"]["loss"].sum
            for _ in range(3)
        ]
        values = {name: v.numpy() for name, v in original_names(step.model).items()}
        results.append((np.array(losses), values))
    (losses, weights), (scaled_losses, scaled_weights) = results
    np.testing.assert_allclose(scaled_losses / deviation**2, losses, rtol=1e-3)
    weights["output_weights"] = weights["output_weights"] * deviation
    weights["output_bias"] = weights["output_bias"] * deviation + mean
    for name, expected in weights.items():
        unit = deviation if name.startswith("output_") else 1.0
        error = np.abs(scaled_weights[name] - expected).max()
        assert error <= 1e-5 * unit + 2e-3 * np.abs(expected).max(), name
