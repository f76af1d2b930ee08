"""Ids out of range, found on the host before a look-up.

A GPU answers an id that a table does not have with zeros, and a CPU with a message that names
neither. A check in the graph would cost time in every step; here the compiled step stays as it is.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig

_DATA = ("x", "validation_data")  # arguments of the methods of Keras that take data
Check = Callable[[Any, Any], None]  # of inputs and labels
# What other libraries call the inputs. Ignored like any other key, they would leave padding
# unmasked or every token in the first segment, and nothing would show.
_FOREIGN_NAMES = {
    "input_word_ids": "input_ids",
    "token_ids": "input_ids",
    "attention_mask": "input_mask",
    "padding_mask": "input_mask",
    "token_type_ids": "segment_ids",
    "input_type_ids": "segment_ids",
}
_ALIASES = {"attention_mask", "token_type_ids"}  # those of Hugging Face are taken


def original_inputs(inputs: Any) -> Any:
    """Returns inputs by the names of the original release, which Hugging Face's become.

    Raises:
        ValueError: one thing is given by both names, or by a name of another library.
    """
    if not isinstance(inputs, Mapping):
        return inputs
    for name in inputs:
        own = _FOREIGN_NAMES.get(name)
        if own and name not in _ALIASES:
            raise ValueError(f"The input {name!r} is named {own!r} here.")
        if own in inputs:
            raise ValueError(f"{name!r} is another name of {own!r}. Give one of them.")
    if not inputs.keys() & _ALIASES:
        return inputs
    return {_FOREIGN_NAMES.get(name, name): value for name, value in inputs.items()}


def check_ids(inputs: Any, config: AlbertConfig, position_inputs: Sequence[str] = ()) -> None:
    """Checks the ids of one batch, or of a whole data set, as far as their values are known.

    Symbolic tensors (those of a function that is being traced, or of a functional model) and what
    is not dense have no values to check.

    Args:
        inputs: `input_ids`, int [..., S], alone or in a dictionary with any of `segment_ids`
            [..., S] and `position_inputs`. Other keys are ignored.
        config: of the model that takes them.
        position_inputs: names of inputs that are positions in their sequence, such as
            `masked_lm_positions` [B, P].

    Raises:
        ValueError: an id or a position is not in its range, or there are too few position
            embeddings for the sequences; names the input and the value.
    """
    inputs = original_inputs(inputs)
    if not isinstance(inputs, Mapping):
        inputs = {"input_ids": inputs}
    ids = _known(inputs.get("input_ids"))
    _check_range("input_ids", ids, config.vocab_size, "the vocabulary (vocab_size)")
    segments = _known(inputs.get("segment_ids"))
    _check_range("segment_ids", segments, config.type_vocab_size, "the types (type_vocab_size)")
    if ids is None or not ids.ndim:
        return
    length = ids.shape[-1]
    config.check_sequence_length(length, "The sequence length")
    for name in position_inputs:
        positions = _known(inputs.get(name))
        _check_range(name, positions, length, f"the positions of {length} tokens")


def check_labels(labels: Any, num_labels: int) -> None:
    """Raises ValueError unless labels whose values are known are ids of classes.

    Passed are numbers of a regression, whose `num_labels` is 1, labels of several outputs, and
    labels of more than one number each, which are for losses of another kind.
    """
    labels = _class_ids(labels)
    known = None if labels is None or num_labels == 1 else _known(labels, any_type=True)
    if known is None or known.size != len(known):
        return
    if known.dtype.kind not in "biuf" or (known.dtype.kind == "f" and (known % 1 != 0).any()):
        raise ValueError(
            f"y must be ids of classes, whole numbers in 0..{num_labels - 1}. Received: "
            f"{reprlib.repr(known.tolist())}"
        )
    _check_range("y", known.astype(np.int64), num_labels, "the classes (num_labels)")


def _class_ids(labels: Any) -> Any:
    """The labels of a classifier, which Keras takes alone or by the name of the output."""
    labels = labels.get("logits") if isinstance(labels, Mapping) else labels
    labels = np.array(labels) if isinstance(labels, list) else labels
    return labels if hasattr(labels, "__array__") or tf.is_tensor(labels) else None


def _known(values: Any, *, any_type: bool = False) -> np.ndarray | None:
    """The integers (or all) that are given, None where there are none whose values are known."""
    if values is None or isinstance(values, keras.KerasTensor):
        return None
    if tf.is_tensor(values) and not isinstance(values, tf.Tensor):
        return None  # a variable, ragged, sparse, or of several replicas
    if isinstance(values, tf.Tensor) and tf.is_symbolic_tensor(values):
        return None
    array = np.asarray(values)
    return array if any_type or np.issubdtype(array.dtype, np.integer) else None


def _check_range(name: str, values: np.ndarray | None, size: int, meaning: str) -> None:
    if values is None or not values.size:
        return
    lowest, highest = values.min(), values.max()
    if lowest < 0 or highest >= size:
        raise ValueError(
            f"{name} must be in 0..{size - 1}, {meaning} of this model. Received: "
            f"{name}={lowest if lowest < 0 else highest}"
        )


def with_checked_data(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of `keras.Model` that checks the ids of its data on the host.

    Arrays and tensors, given as `x`, `y` or `validation_data`, are checked before the first step.
    Batches of a `tf.data.Dataset`, a generator or a `keras.utils.PyDataset` are checked as they are
    read. Anything else, distributed data sets for instance, is passed on as it is. Labels are
    checked as well, where the model has `num_labels` classes.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        found: list[ValueError] = []

        def check(inputs: Any, labels: Any) -> None:
            try:
                check_ids(inputs, self.config, self.position_inputs)
                check_labels(labels, getattr(self, "num_labels", 1))
            except ValueError as error:
                found.append(error)
                raise

        bound = signature.bind(self, *args, **kwargs)
        for name in _DATA:
            if name in bound.arguments:
                bound.arguments[name] = _checked(bound.arguments[name], check)
        check_labels(bound.arguments.get("y"), getattr(self, "num_labels", 1))
        try:
            return method(*bound.args, **bound.kwargs)
        except tf.errors.OpError:
            if found:  # in a thread of the input
                raise found[0] from None
            raise

    return checked


def _checked(data: Any, check: Check) -> Any:
    """The same data, checked, or to be checked batch by batch."""
    if isinstance(data, tf.data.Dataset):
        return _checked_dataset(data, check)
    if isinstance(data, keras.utils.PyDataset):
        return _CheckedPyDataset(data, check)
    if isinstance(data, types.GeneratorType):
        return _checked_batches(data, check)
    inputs, labels = _parts_of(data)
    if isinstance(inputs, Mapping) or hasattr(inputs, "__array__"):
        check(inputs, labels)
    return data


def _parts_of(element: Any) -> tuple[Any, Any]:
    """The model's inputs and the labels in what a data set gives, with weights or without."""
    return keras.utils.unpack_x_y_sample_weight(element)[:2]


def _checked_batches(batches: Iterator[Any], check: Check) -> Iterator[Any]:
    for batch in batches:
        check(*_parts_of(batch))
        yield batch


def _checked_dataset(dataset: tf.data.Dataset, check: Check) -> tf.data.Dataset:
    is_tuple = isinstance(dataset.element_spec, tuple)

    def pass_on(*element: Any) -> Any:
        element = element if is_tuple else element[0]
        inputs, labels = _parts_of(element)
        inputs = inputs if isinstance(inputs, Mapping) else {"input_ids": inputs}
        dense = {name: x for name, x in inputs.items() if isinstance(x, tf.Tensor)}
        labels = _class_ids(labels)
        given = [labels] if isinstance(labels, tf.Tensor) else []

        def check_batch(*values: np.ndarray) -> np.bool_:
            check(dict(zip(dense, values, strict=False)), values[-1] if given else None)
            return np.True_

        values = [*dense.values(), *given]
        with tf.control_dependencies([tf.numpy_function(check_batch, values, tf.bool)]):
            return tf.nest.map_structure(tf.identity, element, expand_composites=True)

    return dataset.map(pass_on)


class _CheckedPyDataset(keras.utils.PyDataset):
    """A data set whose batches are checked when they are read."""

    def __init__(self, dataset: keras.utils.PyDataset, check: Check) -> None:
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self._dataset = dataset
        self._check = check

    def __getitem__(self, index: int) -> Any:
        batch = self._dataset[index]
        self._check(*_parts_of(batch))
        return batch

    @property
    def num_batches(self) -> int | None:
        return self._dataset.num_batches

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._dataset.on_epoch_end()
