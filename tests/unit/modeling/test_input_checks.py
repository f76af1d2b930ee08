"""Ids out of range, wherever Keras takes data."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from tests.small_model import encoder_inputs, pretraining_inputs, small_config

CONFIG = small_config(num_hidden_layers=1, num_hidden_groups=1, inner_group_num=1)
METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
OF_DATA_SETS = ("fit", "evaluate", "predict")


class Classifier(AlbertForClassification):
    """Gives its logits alone, so that one loss can be compiled."""

    def call(self, inputs, training=None):
        return super().call(inputs, training)["logits"]


class Batches(keras.utils.PyDataset):
    """Batches of a row, as Keras reads them from Python."""

    def __init__(self, inputs, labels, **options):
        super().__init__(**options)
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        batch = {name: values[row : row + 1] for name, values in self.inputs.items()}
        return batch, self.labels[row : row + 1]


def as_arrays(inputs, labels):
    return inputs, labels


def as_tensors(inputs, labels):
    return {name: tf.constant(values) for name, values in inputs.items()}, labels


def as_dataset(inputs, labels):
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(1), None


def as_dataset_of_inputs(inputs, labels):
    return tf.data.Dataset.from_tensor_slices(inputs).batch(1), None


def as_generator(inputs, labels):
    return (batch for batch in Batches(inputs, labels)), None


def as_py_dataset(inputs, labels):
    return Batches(inputs, labels), None


def as_py_dataset_of_threads(inputs, labels):
    return Batches(inputs, labels, workers=2), None


@pytest.fixture(scope="module")
def model():
    model = Classifier(CONFIG, num_labels=3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    return model


def data(row=2, **changes):
    """Inputs and labels of three rows; a change is the first value of that row."""
    inputs = {name: values.numpy() for name, values in encoder_inputs().items()}
    for name, value in changes.items():
        inputs[name][row, 0] = value
    return inputs, np.array([0, 1, 2])


def use(model, method, x, y):
    quiet = {"verbose": 0} if method in OF_DATA_SETS else {}
    if method.startswith("predict"):
        return getattr(model, method)(x, **quiet)
    return getattr(model, method)(x, y, **quiet)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", [as_arrays, as_tensors])
def test_arrays_are_checked_before_the_first_step(model, method, form):
    use(model, method, *form(*data()))
    with pytest.raises(ValueError, match=r"0\.\.30\b.*vocab_size.*input_ids=31$"):
        use(model, method, *form(*data(input_ids=31)))


@pytest.mark.parametrize("row", [0, 2])  # Keras looks at the first one before it starts
@pytest.mark.parametrize(
    ("form", "methods"),
    [
        (as_dataset, OF_DATA_SETS),
        (as_dataset_of_inputs, ("predict",)),
        (as_generator, ("fit",)),
        (as_py_dataset, ("predict",)),
        (as_py_dataset_of_threads, ("fit",)),
    ],
)
def test_batches_are_checked_as_they_are_read(model, form, methods, row):
    for method in methods:
        with pytest.raises(ValueError, match=r"input_ids=-1$"):
            use(model, method, *form(*data(row, input_ids=-1)))


@pytest.mark.parametrize("form", [as_arrays, as_dataset, as_py_dataset])
def test_the_data_to_validate_with_are_checked(model, form):
    x, y = form(*data(input_ids=77))
    validation = x if y is None else (x, y)
    with pytest.raises(ValueError, match=r"input_ids=77$"):
        model.fit(*data(), validation_data=validation, verbose=0)


@pytest.mark.parametrize("form", [as_arrays, as_tensors, as_dataset, as_generator, as_py_dataset])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3, 1], r"y must be in 0\.\.2\b.*num_labels.*y=3$"),
        ([0, -1, 1], r"y=-1$"),
        ([0.0, 0.5, 1.0], r"y must be ids of classes.*0\.5"),
    ],
)
def test_labels_that_the_head_does_not_have_are_refused(model, form, labels, message):
    inputs, _ = data()
    with pytest.raises(ValueError, match=message):
        use(model, "fit", *form(inputs, np.array(labels)))
    if form is as_arrays:
        with pytest.raises(ValueError, match=message):
            model.fit(*data(), validation_data=(inputs, np.array(labels)), verbose=0)
        with pytest.raises(ValueError, match=message):
            model.fit(inputs, labels, verbose=0)
        with pytest.raises(ValueError, match=r"y must be ids of classes.*'yes'"):
            model.fit(inputs, ["no", "yes", "no"], verbose=0)


def test_a_data_set_keeps_its_structure_and_its_predictions(model):
    inputs, labels = data()
    expected = model.predict(inputs, verbose=0)
    for form in (as_dataset, as_dataset_of_inputs, as_generator, as_py_dataset):
        np.testing.assert_allclose(
            model.predict(form(inputs, labels)[0], verbose=0), expected, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": [[31]]}, r"vocab_size.*input_ids=31$"),
        ({"input_ids": [[3, -2]]}, r"input_ids=-2$"),
        ({"segment_ids": [[0, 5, 0]]}, r"0\.\.4\b.*type_vocab_size.*segment_ids=5$"),
        ({"masked_lm_positions": [[0, 3]]}, r"0\.\.2\b.*masked_lm_positions=3$"),
        ({"masked_lm_positions": [[-1, 0]]}, r"masked_lm_positions=-1$"),
        ({"input_ids": [[1] * 17]}, r"16.*max_position_embeddings.*17$"),
    ],
)
@pytest.mark.parametrize("convert", [np.array, tf.constant])
def test_a_call_with_values_is_checked(changes, message, convert):
    model = AlbertForPretraining(CONFIG)
    inputs = {"input_ids": [[1, 2, 3]], "masked_lm_positions": [[0, 2]], **changes}
    with pytest.raises(ValueError, match=message):
        model({name: convert(values) for name, values in inputs.items()})


def test_starts_of_answers_are_positions():
    model = AlbertForQuestionAnsweringWithBeamSearch(CONFIG)
    inputs = {"input_ids": np.ones((1, 6), int), "segment_ids": np.ones((1, 6), int)}
    with pytest.raises(ValueError, match=r"0\.\.5\b.*start_positions=6$"):
        model({**inputs, "start_positions": np.array([6])})


def test_the_encoder_alone_is_checked():
    encoder = AlbertForPretraining(CONFIG).encoder
    with pytest.raises(ValueError, match=r"input_ids=40$"):
        encoder(np.array([[40]]))


def test_no_operation_is_added_to_what_is_compiled():
    model = AlbertForPretraining(CONFIG)
    specs = {
        name: tf.TensorSpec(values.shape, values.dtype)
        for name, values in pretraining_inputs().items()
    }

    def operations(call):
        graph = tf.function(lambda inputs: call(inputs)).get_concrete_function(specs).graph
        return collections.Counter(operation.type for operation in graph.get_operations())

    checked = operations(model)
    assert checked == operations(lambda inputs: keras.Model.__call__(model, inputs))
    assert not {"Assert", "PyFunc", "EagerPyFunc"} & checked.keys()
