"""The usual operations of Keras: save, load, export, predict, fit, callbacks, strategies."""

import copy
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from tests.programs import ROOT, isolated_python
from tests.small_model import ONE_BLOCK, small_config
from tests.usual import usual

pytestmark = pytest.mark.usefixtures("eager")
TEXTS = ["a moving film", "a waste of two hours and of money", "fine"]
INPUTS = ("input_ids", "input_mask", "segment_ids")
CONFIG = small_config(**ONE_BLOCK)


@pytest.fixture(scope="module")
def classifier(tokenizer):
    config = CONFIG.replace(vocab_size=1000, max_position_embeddings=24)
    model = albert_tf.AlbertForClassification(config, labels=["no", "yes"], dropout_prob=0.2)
    model.tokenizer = tokenizer
    model.compile(
        albert_tf.AdamWeightDecay(1e-4),
        loss=model.default_loss(),
        metrics=["accuracy"],
        jit_compile=False,
    )
    model.fit(model.tokenizer(TEXTS), np.array([1, 0, 1]), verbose=0)
    return model


def run_elsewhere(program, *arguments):
    """Runs a program in a process that has not imported this package."""
    command = [isolated_python(), "-c", program, *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_class_and_schedule_loads_in_a_new_process(tmp_path, classifier):
    models = [
        classifier,
        *(albert_tf.AlbertEncoder(CONFIG), albert_tf.AlbertForPretraining(CONFIG)),
        albert_tf.AlbertForMultipleChoice(CONFIG),
        albert_tf.AlbertForTokenClassification(CONFIG, 3),
        albert_tf.AlbertForQuestionAnswering(CONFIG),
        albert_tf.AlbertForQuestionAnsweringWithBeamSearch(CONFIG, 3, 2),
    ]
    rate = albert_tf.WarmupPolynomialDecay(1e-3, num_train_steps=9, num_warmup_steps=2)
    paths = [tmp_path / f"{number}.keras" for number in range(len(models))]
    for model, path in zip(models, paths, strict=True):
        if model is not classifier:
            model.compile(albert_tf.Lamb(rate))
        model.save(path)
    program = f"""
import sys
import albert_tf, keras  # in the other order than above
import numpy as np
models = [keras.models.load_model(path) for path in sys.argv[2:]]
for model, path in zip(models, sys.argv[2:]):
    print(type(model).__name__, type(model.optimizer).__name__)
    albert_tf.load(path)
model = models[0]
assert (model.labels, model.dropout_prob) == (("no", "yes"), 0.2)
x = model.tokenizer({TEXTS!r})
np.save(sys.argv[1], model.predict(x, verbose=0)["logits"])
print(model.evaluate(x, np.array([1, 0, 1]), verbose=0, return_dict=True)["loss"])
"""
    *printed, loss = run_elsewhere(program, tmp_path / "logits.npy", *paths).splitlines()
    assert printed == [f"{type(m).__name__} {type(m.optimizer).__name__}" for m in models]
    assert printed[0].endswith(" AdamWeightDecay")
    x = classifier.tokenizer(TEXTS)
    expected = classifier.predict(x, verbose=0)["logits"]
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=0, atol=1e-6)
    wanted = classifier.evaluate(x, np.array([1, 0, 1]), verbose=0)[0]
    assert float(loss) == pytest.approx(wanted, 1e-5)


def test_functions_take_keras_files(tmp_path, classifier):
    file = tmp_path / "model.keras"
    classifier.save(file)
    x = classifier.tokenizer(TEXTS)
    expected = classifier.predict(x, verbose=0)["logits"]
    loaded = albert_tf.load(file)
    assert loaded.labels == ("no", "yes")
    np.testing.assert_allclose(loaded.predict(x, verbose=0)["logits"], expected, rtol=0, atol=1e-6)
    predictions = albert_tf.TextClassifier.load(file)(TEXTS)
    assert [p.label for p in predictions] == [("no", "yes")[i] for i in expected.argmax(-1)]
    albert_tf.save(loaded, tmp_path / "directory")
    assert albert_tf.load_tokenizer(tmp_path / "directory").tokens == loaded.tokenizer.tokens


def test_a_keras_file_of_another_model_is_rejected(tmp_path):
    file = tmp_path / "other.keras"
    keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]).save(file)
    with pytest.raises(ValueError, match="contains a Sequential"):
        albert_tf.load(file)


@pytest.mark.usefixtures("traced")
def test_export_needs_no_arguments(tmp_path, classifier):
    classifier.export(tmp_path / "exported", verbose=False)
    program = f"""
import sys
import numpy as np
import tensorflow as tf
signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
for number in (1, 3):
    x = np.load(f"x{{number}}.npz")
    outputs = signature(**{{name: tf.constant(x[name]) for name in {INPUTS!r}}})
    np.save(f"logits{{number}}.npy", outputs["logits"])
"""
    batches = {number: classifier.tokenizer(TEXTS[:number]) for number in (1, 3)}
    for number, x in batches.items():
        np.savez(tmp_path / f"x{number}.npz", **x)
    run_elsewhere(f"import os; os.chdir({str(tmp_path)!r}){program}", tmp_path / "exported")
    for number, x in batches.items():
        expected = classifier.predict(x, verbose=0)["logits"]
        found = np.load(tmp_path / f"logits{number}.npy")
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_without_positions_all_tokens_are_scored():
    model = albert_tf.load("mini")
    x = model.tokenizer(TEXTS)
    everything = model.predict(x, verbose=0)
    assert everything.keys() == {"masked_lm_logits", "sentence_order_logits"}
    assert everything["masked_lm_logits"].shape == (*x["input_ids"].shape, 8000)

    # Random weights give small scores, whose rounding errors are small.
    model = albert_tf.AlbertForPretraining(CONFIG)
    x = {name: values % CONFIG.vocab_size for name, values in x.items()}
    everything = model.predict(x, verbose=0)
    positions = np.array([[1, 3], [5, 2], [1, 0]])
    some = model({**x, "masked_lm_positions": positions})["masked_lm_logits"]
    selected = np.take_along_axis(everything["masked_lm_logits"], positions[..., None], axis=1)
    assert np.std(selected) > 1e-2  # the scores of different positions differ
    np.testing.assert_allclose(some, selected, rtol=1e-5, atol=1e-5)


def test_labels_under_other_names_are_rejected():
    model = albert_tf.AlbertForQuestionAnswering(CONFIG)
    model.compile("sgd", loss=model.default_loss(), run_eagerly=True)
    x = {name: np.ones([3, 7], np.int32) for name in INPUTS}
    with pytest.raises(ValueError, match=r"end_logits.*start_logits"):
        model.fit(x, {"start": np.ones(3), "end": np.ones(3)}, verbose=0)
    model.compile("sgd", loss=model.default_loss(), run_eagerly=True)
    model.test_on_batch(x, {"start_logits": np.ones(3), "end_logits": np.ones(3)})


@pytest.mark.parametrize(
    ("settings", "labels", "named"),
    [
        ({"num_labels": 3}, np.eye(3), r"shape \[(3|any)\].*CategoricalCrossentropy"),
        ({"num_labels": 3, "multi_label": True}, np.ones(3), r"shape \[(3|any), 3\]"),
    ],
)
def test_labels_of_another_shape_are_rejected(settings, labels, named):
    model = albert_tf.AlbertForClassification(CONFIG, **settings)
    model.compile("sgd", loss=model.default_loss())
    with pytest.raises(ValueError, match=named):
        model.test_on_batch(np.ones([3, 7], np.int32), labels)


def test_one_hot_labels_work_with_the_loss_of_keras():
    model = albert_tf.AlbertForClassification(CONFIG, 3)
    ids, losses = np.arange(21).reshape(3, 7), []
    one_hot = {"logits": keras.losses.CategoricalCrossentropy(from_logits=True)}
    for loss, labels in ((one_hot, np.eye(3)), (model.default_loss(), np.arange(3))):
        model.compile("sgd", loss=loss, run_eagerly=True)
        losses.append(model.evaluate(ids, labels, verbose=0, return_dict=True)["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


MODELS = {
    "classes": lambda: albert_tf.AlbertForClassification(CONFIG, 3),
    "several": lambda: albert_tf.AlbertForClassification(CONFIG, 3, multi_label=True),
    "regression": lambda: albert_tf.AlbertForClassification(CONFIG, 1),
    "words": lambda: albert_tf.AlbertForTokenClassification(CONFIG, 3),
    "choices": lambda: albert_tf.AlbertForMultipleChoice(CONFIG),
    "span": lambda: albert_tf.AlbertForQuestionAnswering(CONFIG),
    "beam": lambda: albert_tf.AlbertForQuestionAnsweringWithBeamSearch(CONFIG),
    "pretraining": lambda: albert_tf.AlbertForPretraining(CONFIG),
}


@pytest.mark.parametrize("name", MODELS)
def test_compile_uses_the_loss_of_the_head(name, caplog):
    model = MODELS[name]()
    model.compile("adam")
    expected = {k: loss.get_config() for k, loss in model.default_loss().items()}
    assert {k: loss.get_config() for k, loss in model.loss.items()} == expected
    assert caplog.text == ""
    model.compile("adam", loss="sparse_categorical_crossentropy")
    assert f"probabilities, but {type(model).__name__} returns logits" in caplog.text


LOSSES = keras.losses


@pytest.mark.parametrize(
    ("loss", "warns"),
    [
        ("binary_crossentropy", True),
        ("CategoricalCrossentropy", True),
        ("kl_divergence", True),
        (LOSSES.categorical_crossentropy, True),
        ({"logits": LOSSES.SparseCategoricalCrossentropy()}, True),
        ([LOSSES.KLDivergence()], True),
        (LOSSES.BinaryFocalCrossentropy(from_logits=True), False),
        (LOSSES.SparseCategoricalCrossentropy(from_logits=True), False),
        ("mse", False),
        (lambda y_true, y_pred: 0.0, False),
        (None, False),
    ],
)
def test_losses_of_probabilities_are_reported(loss, warns, caplog):
    MODELS["classes"]().compile("adam", loss=loss)
    assert ("probabilities" in caplog.text) == warns


def test_formats_with_an_own_function_are_named(tmp_path):
    for name in ("onnx", "litert"):
        with pytest.raises(ValueError, match=f"export_{name}"):
            MODELS["classes"]().export(tmp_path / "model", format=name)


def test_a_name_instead_of_a_configuration_is_rejected():
    with pytest.raises(TypeError, match=r"AlbertEncoder\.load\('base_v2'\)"):
        albert_tf.AlbertEncoder("base_v2")


@pytest.mark.usefixtures("traced")
def test_fit_with_a_dataset_callbacks_and_frozen_encoder(tmp_path):
    ids = np.random.default_rng(0).integers(5, 31, [12, 7])
    dataset = tf.data.Dataset.from_tensor_slices((ids, ids[:, 0] % 2)).batch(6)
    model = albert_tf.AlbertForClassification(CONFIG, 2)
    model.encoder.trainable = False
    model.compile(albert_tf.AdamWeightDecay(1e-2), loss=model.default_loss())
    before = [np.array(weight) for weight in model.encoder.weights]
    callbacks = [
        keras.callbacks.EarlyStopping("loss", patience=3),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", "loss", save_best_only=True),
        keras.callbacks.TensorBoard(tmp_path / "logs"),
    ]
    history = model.fit(dataset, epochs=2, callbacks=callbacks, verbose=0).history["loss"]
    for old, new in zip(before, model.encoder.weights, strict=True):
        np.testing.assert_array_equal(old, new)
    assert history[1] < history[0]
    assert (tmp_path / "best.keras").exists()
    assert any((tmp_path / "logs").rglob("events*"))
    model.summary(print_fn=lambda *args, **kwargs: None)


@pytest.mark.usefixtures("traced")
def test_mixed_precision_strategy_and_gradient_tape():
    ids = np.random.default_rng(1).integers(5, 31, [6, 7])
    # Without collective operations: their keys clash with those of other strategies in a process.
    strategy = tf.distribute.MirroredStrategy(
        tf.config.list_logical_devices("CPU")[:2], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model = albert_tf.AlbertForClassification(CONFIG, 2, dtype="mixed_bfloat16")
        model.compile(albert_tf.AdamWeightDecay(1e-2), loss=model.default_loss(), jit_compile=False)
    model.fit(ids, ids[:, 0] % 2, batch_size=6, verbose=0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(ids, training=True)["logits"])
    assert all(g is not None for g in tape.gradient(loss, model.classifier.trainable_variables))


@keras.saving.register_keras_serializable("test")
class OwnModel(keras.Model):
    """A user's model that holds an encoder and a layer without a shape."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.encoder = albert_tf.AlbertEncoder(config)
        self.dense = keras.layers.Dense(2)

    def call(self, inputs, training=None):
        return self.dense(self.encoder(inputs, training=training)["pooled_output"])

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config):
        return cls(albert_tf.AlbertConfig(**config.pop("config")), **config)


@pytest.mark.parametrize("precision", usual(["float32", "mixed_bfloat16"], "float32"))
@pytest.mark.usefixtures("traced")
def test_own_models_are_saved_with_all_layers(tmp_path, precision):
    config = CONFIG.replace(vocab_size=1000)  # bfloat16 would round ids above 256
    model = OwnModel(config, dtype=precision)
    x = {name: np.arange(3, 24).reshape(3, 7) % 2 for name in INPUTS}
    x["input_ids"] = np.arange(700, 721).reshape(3, 7)
    expected = model(x)
    model.save(tmp_path / "own.keras")
    loaded = keras.models.load_model(tmp_path / "own.keras")
    np.testing.assert_array_equal(loaded(x), expected)
    np.testing.assert_array_equal(copy.deepcopy(model)(x), expected)
    if precision == "mixed_bfloat16":
        with pytest.raises(ValueError, match=r"must be integers.*bfloat16"):
            model.export(tmp_path / "exported", verbose=False)
        return
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    served = exported.serve({name: tf.constant(values, tf.float32) for name, values in x.items()})
    np.testing.assert_allclose(served, expected, rtol=0, atol=1e-6)


def test_hdf5_files_are_loaded(tmp_path):
    ids = np.arange(2, 23).reshape(3, 7)
    config = small_config(num_hidden_layers=2, inner_group_num=1)
    model = albert_tf.AlbertForClassification(config, labels=["no", "yes"])
    model.compile(albert_tf.AdamWeightDecay(1e-3), loss=model.default_loss(), run_eagerly=True)
    callback = keras.callbacks.ModelCheckpoint(tmp_path / "best.h5")
    model.fit(ids, ids[:, 0] % 2, verbose=0, callbacks=[callback])
    loaded = keras.models.load_model(tmp_path / "best.h5")
    np.testing.assert_array_equal(loaded(ids)["logits"], model(ids)["logits"])


@pytest.mark.parametrize(
    "optimizer", ["AdamWeightDecay", pytest.param("Lamb", marks=pytest.mark.slow)]
)
def test_lora(tmp_path, optimizer):
    ids = np.arange(2, 23).reshape(3, 7)
    model = albert_tf.AlbertForClassification(CONFIG, labels=["no", "yes"])
    before = model(ids)["logits"]
    frozen = model.encoder.trainable_weights
    weights = [np.array(weight) for weight in frozen]
    model.enable_lora(2)
    np.testing.assert_array_equal(model(ids)["logits"], before)
    with pytest.raises(ValueError, match="already enabled"):
        model.enable_lora(2)
    optimizer = getattr(albert_tf, optimizer)(1e-2)
    model.compile(optimizer, loss=model.default_loss(), run_eagerly=True)
    for _ in range(2):
        model.train_on_batch(ids, ids[:, 0] % 2)
    trained = {variable.name for variable in model.trainable_variables}
    assert trained == {"lora_a", "lora_b", "output_weights", "output_bias"}
    for old, new in zip(weights, frozen, strict=True):
        np.testing.assert_array_equal(old, new)

    logits = model(ids)["logits"]
    assert np.abs(logits - before).max() > 1e-3
    model.save(tmp_path / "lora.keras")
    model.save_weights(tmp_path / "lora.weights.h5")
    albert_tf.save(model, tmp_path / "directory")
    plain = albert_tf.AlbertForClassification(CONFIG, labels=["no", "yes"])
    plain.load_weights(tmp_path / "lora.weights.h5")
    loaded = keras.models.load_model(tmp_path / "lora.keras")
    assert {variable.name for variable in loaded.trainable_variables} == trained
    merged = [albert_tf.load(tmp_path / name) for name in ("lora.keras", "directory")]
    for other in (plain, loaded, *merged):
        np.testing.assert_allclose(other(ids)["logits"], logits, rtol=0, atol=1e-6)


def test_quantize_is_rejected():
    tokens = keras.Input([None], dtype="int32")
    model = keras.Model(tokens, albert_tf.AlbertEncoder(CONFIG)(tokens)["pooled_output"])
    with pytest.raises(ValueError, match="export_litert"):
        model.quantize("int8")


@pytest.mark.usefixtures("traced")
def test_fractional_ids_are_rejected():
    model = albert_tf.AlbertForClassification(CONFIG, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="-1 is not in"):
        model.predict(np.array([[2.0, 2.5]], np.float32), verbose=0)


def test_the_encoder_in_a_functional_model_and_a_clone():
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in INPUTS}
    pooled = albert_tf.AlbertEncoder(CONFIG)(inputs)["pooled_output"]
    model = keras.Model(inputs, keras.layers.Dense(2)(pooled))
    x = {name: np.ones([3, 7], np.int32) for name in INPUTS}
    expected = model(x)
    assert expected.shape == (3, 2)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(x), expected)
