"""The base class of all models: inputs, settings, LoRA, and files."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import keras
import tensorflow as tf

from albert_tf.data.arguments import as_path, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.modeling.layers import ConfigLike, Inputs, Projection, SavedSettings, as_config

M = TypeVar("M", bound="ConfiguredModel")
_ALIASES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}  # Hugging Face's names
_EXPORTERS = {"onnx": "export_onnx", "litert": "export_litert"}  # formats of Keras
# Rejected names of other libraries. If a mask were ignored, the model would attend to padding.
_FOREIGN_NAMES = {
    "input_word_ids": "input_ids",
    "token_ids": "input_ids",
    "padding_mask": "input_mask",
    "input_type_ids": "segment_ids",
}


def _checkpoints(module: str) -> ModuleType:
    """Imports a module of `albert_tf.checkpoints` on first use, to avoid circular imports."""
    return importlib.import_module(f"albert_tf.checkpoints.{module}")


class ConfiguredModel(SavedSettings, keras.Model):
    """Base class of models whose constructor takes an `AlbertConfig`.

    Token ids, segment ids and positions must be in range. For other values, TensorFlow raises an
    error on a CPU, but reads zeros on a GPU.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("config", "use_one_hot_embeddings")

    tokenizer: Any = None  # stored with the model
    trained_task: Any = None  # the `StoredTask` of the heads
    lora_rank: int | None = None  # see `enable_lora`
    weights_file = ""  # file or prefix from which the weights were loaded
    has_new_head = False  # whether `load` initialized the head randomly
    uses_pooler = True  # whether an output depends on the pooler
    # Names of the head's variables in the original release. A name that ends in "/" is a scope.
    head_weights: ClassVar[tuple[str, ...]] = ()
    input_rank: ClassVar[int] = 2  # 2 for inputs [B, S], 3 for [B, C, S]

    def __init__(
        self, config: ConfigLike, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.config = as_config(config)
        self.use_one_hot_embeddings = use_one_hot_embeddings

    @property
    def input_dtype(self) -> str:
        """See `keras.layers.Layer.input_dtype`. Half precision would round token ids."""
        return "float32"

    def __call__(self, inputs: Inputs, *args: Any, **kwargs: Any) -> Any:
        """See `keras.layers.Layer`. Checks the inputs before Keras casts them."""
        _check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    @classmethod
    def load(
        cls: type[M],
        path: str | os.PathLike,
        *,
        albert_config_file: str | None = None,
        allow_partial: bool = False,
        **settings: Any,
    ) -> M:
        """Creates a model of this class with stored weights of any supported format.

        If no head of this task is stored, the head gets random weights, and a warning is logged.

        Args:
            path: see `albert_tf.load`.
            albert_config_file: the configuration, if it is not stored with the weights.
            allow_partial: whether to accept an incomplete encoder. A new head accepts an encoder
                without a pooler.
            **settings: arguments of the constructor, such as `labels`. Default: the settings of
                the stored model.

        Raises:
            ValueError: see `albert_tf.load`; the encoder or head is incomplete, or a new head has
                no labels.
        """
        loading = _checkpoints("loading")
        stored = loading.choose_model(as_path("path", path), albert_config_file=albert_config_file)
        model: M = loading.build_as(cls, stored, settings, allow_partial)
        return model

    def set_origin(self, tokenizer: Any, trained_task: Any, *, has_new_head: bool = False) -> None:
        """Sets what belongs to the weights, after they were loaded or trained."""
        self.tokenizer = tokenizer
        self.trained_task = trained_task
        self.has_new_head = has_new_head
        if hasattr(self, "encoder"):
            self.encoder.tokenizer = tokenizer

    def enable_lora(self, rank: int) -> None:
        """Adds trainable low-rank matrices to the encoder, and freezes its other weights.

        Works like `keras.layers.Dense.enable_lora(rank)` in each projection of the blocks. Heads
        remain trainable. Call this method before `compile`. Saved files contain the merged weights.
        """
        check_whole_number("rank", rank, 1)
        encoder: Any = getattr(self, "encoder", self)
        if encoder.lora_rank:
            raise UserError(f"LoRA is already enabled, with rank={encoder.lora_rank}.")
        for variable in encoder.variables:
            variable.trainable = False
        for block in encoder.blocks:
            parts = [*vars(block.attention).values(), *vars(block.feed_forward).values()]
            with keras.name_scope(block.name):
                for projection in (part for part in parts if isinstance(part, Projection)):
                    projection.enable_lora(rank)
        self.lora_rank = encoder.lora_rank = rank

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, and the rank of LoRA."""
        return {**super().get_config(), **({"lora_rank": self.lora_rank} if self.lora_rank else {})}

    def complete_inputs(self, inputs: Inputs) -> dict[str, tf.Tensor]:
        """Returns inputs by their names in the original release, with an `input_mask`."""
        inputs = inputs if isinstance(inputs, Mapping) else {"input_ids": inputs}
        padding_id = self.tokenizer.pad_id if self.tokenizer else 0
        named = {_ALIASES.get(name, name): value for name, value in inputs.items()}
        ids = named["input_ids"]
        if isinstance(ids, tf.RaggedTensor):
            named["input_ids"] = ids = ids.to_tensor(padding_id)
        if tf.convert_to_tensor(ids).dtype == tf.float32:
            whole = tf.cast(ids, tf.int32)
            named["input_ids"] = tf.where(tf.cast(whole, tf.float32) == ids, whole, -1)
        mask = named.get("input_mask")
        mask = tf.not_equal(ids, padding_id) if mask is None else mask
        is_bool = tf.convert_to_tensor(mask).dtype == tf.bool
        named["input_mask"] = tf.cast(mask, tf.int32) if is_bool else mask
        return named

    def save_assets(self, dir_path: str) -> None:
        """Stores tokenizer and labels in a `.keras` file. Called by Keras."""
        if self.tokenizer is not None or self.trained_task is not None:
            _checkpoints("formats.keras_file").save_assets(self, dir_path)

    def load_assets(self, dir_path: str | None) -> None:
        """Reads tokenizer and labels from a `.keras` file. Called by Keras."""
        if dir_path is not None and os.path.isdir(dir_path):
            _checkpoints("formats.keras_file").load_assets(self, dir_path)

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """See `keras.Model.export`. The default signature accepts batches of any shape."""
        if format in _EXPORTERS:
            raise UserError(
                f"format={format!r} is not supported. Save the model with albert_tf.save, and pass "
                f"the directory to albert_tf.{_EXPORTERS[format]}."
            )
        if input_signature is None:
            shape = [None] * self.input_rank
            names = ("input_ids", "input_mask", "segment_ids")
            input_signature = [{name: tf.TensorSpec(shape, tf.int32, name) for name in names}]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """See `keras.Model.compute_loss`. Raises ValueError for labels without an output."""
        if isinstance(y, Mapping) and isinstance(y_pred, Mapping) and y.keys() - y_pred.keys():
            raise UserError(f"Labels must be for {sorted(y_pred)}. Received: {sorted(y)}")
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> ConfiguredModel:
        """Builds a model from the result of `get_config`."""
        config = dict(config)
        trainable, lora_rank = config.get("trainable", True), config.pop("lora_rank", None)
        model = super().from_config({**config, "trainable": True}, custom_objects)
        if lora_rank:
            model.enable_lora(lora_rank)
        if not trainable:
            model.trainable = False  # the constructor would not freeze the layers
        return model


def lora_rank(model: Any) -> int | None:
    """Returns the rank of LoRA in an encoder or in the encoder of a model; `None` if disabled."""
    return getattr(getattr(model, "encoder", model), "lora_rank", None)


def _check_inputs(inputs: Inputs) -> None:
    """Rejects lists, names of other libraries, and token ids that are not integers."""
    if isinstance(inputs, (list, tuple)):
        raise UserError(
            "Pass a dictionary of 'input_ids', 'input_mask' and 'segment_ids', because the order "
            f"in a list is ambiguous. Received: a {type(inputs).__name__} of {len(inputs)} inputs"
        )
    named = inputs if isinstance(inputs, Mapping) else {"input_ids": inputs}
    for name in named:
        if name in _FOREIGN_NAMES:
            raise UserError(f"Expected an input named {_FOREIGN_NAMES[name]!r}. Received: {name!r}")
        if _ALIASES.get(name) in named:
            raise UserError(f"Pass only one of {_ALIASES[name]!r} and {name!r}. Received: both")
    if "input_ids" not in named:
        raise UserError(f"The model needs 'input_ids'. Received: {sorted(named)}")
    dtype = tf.as_dtype(getattr(named["input_ids"], "dtype", tf.int32))
    # Keras builds and exports models with floating-point inputs. Half precision would round ids.
    is_exact = dtype in (tf.float32, tf.float64) and not tf.executing_eagerly()
    if not dtype.is_integer and not is_exact:
        raise UserError(
            f"'input_ids' must be integers (keras.Input: dtype='int32'). Received: {dtype.name}"
        )
