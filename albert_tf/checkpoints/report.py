"""Errors of loading and saving, and the report on loaded weights."""

import collections
import dataclasses
import os
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatch
from types import ModuleType

from albert_tf.checkpoints.errors import LoadError
from albert_tf.config import GROWING, AlbertConfig
from albert_tf.data.errors import visible
from albert_tf.data.files import folder_names
from albert_tf.data.strict_json import listed, shown
from albert_tf.modeling.original_names import PRETRAINING_HEADS
from albert_tf.modeling.parameter_sharing import (
    ENCODER_PREFIX,
    POOLER,
    TRANSFORMER_SCOPE,
    parameter_counts,
)

# The tables that `growth.grow` changes.
TABLES = (
    "bert/embeddings/word_embeddings",
    "cls/predictions/output_bias",
    "bert/embeddings/position_embeddings",
)

# Models that are not supported, by a pattern of their names of variables, most specific first.
_OTHER_MODELS = {
    r"/\.ATTRIBUTES/": "an object-based checkpoint of Keras, tf.train.Checkpoint or the TensorFlow "
    "Model Garden, which cannot be read",
    r"\blora_[AB]\b": "a model with LoRA adapters. Store model.merge_and_unload() of PEFT",
    r"/encoder/layer_shared/": "a model of brightmart/albert_zh, which is not the original ALBERT",
    r"(^|[./])electra[./]": "an ELECTRA model, not ALBERT",
    r"(^|[./])roberta[./]": "a RoBERTa model, not ALBERT",
    r"\btransformer\.layer\.\d": "a DistilBERT model, not ALBERT",
    r"\bencoder[./]layer[._]\d": "a BERT checkpoint or a similar one, not ALBERT",
    r"/layer_normalization(_\d+)?/": "a model that the original code trained under TensorFlow 2, "
    "with layer norms for every layer, which ALBERT shares. Train it again with this package",
}

# Descriptions by a pattern of names, most specific first.
_OTHER_FILES = {
    "adapter_*": "of a PEFT adapter, not of a model. Load it with its model, and store "
    "model.merge_and_unload() with save_pretrained",
    "*.onnx": "an ONNX model. Pass the model that it was exported from",
    "*.msgpack": "a Flax model. Load it in transformers 4 with from_pretrained(..., "
    "from_flax=True), and store it with save_pretrained",
    "*.tflite": "a LiteRT model. Pass the model that it was exported from",
    "*.gguf": "a model of llama.cpp. Pass the model that it was converted from",
    "openvino_*": "a model of OpenVINO. Pass the model that it was exported from",
    "*.safetensors": "not named model.safetensors. Rename a copy if it contains the whole model",
    # Other files of the Trainer are training_args.bin, optimizer.pt, scheduler.pt, rng_state.pth.
    "[!t]*.bin": "not named pytorch_model.bin. Rename a copy if it contains the weights",
    "[!ors]*.pt*": "not named pytorch_model.bin. Rename a copy if it contains the weights",
    "*.ckpt": "not named pytorch_model.bin. Rename a copy if PyTorch stored the weights in it",
}
_MODELS = ("*.index", "saved_model.pb", "*model*.safetensors*", "pytorch_model*", "*model*.h5")


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of loading a checkpoint into a model. All names are the original's.

    Attributes:
        source: file of the weights, or prefix of TensorFlow's files.
        shapes: shape of every variable in the checkpoint.
        mapped: model variable -> variable of the checkpoint with its value.
        missing: model variables that are not in the checkpoint; they keep their initial values.
        ignored: variables of the checkpoint that were not used, except slots and step.
        mismatched: (model variable, shape in the checkpoint, shape in the model), not loaded.
        skipped: model variable -> reason why it keeps its initial value.
        unused: the variables in `missing` of a pooler that no loaded head was trained with.
    """

    source: str
    shapes: Mapping[str, Sequence[int]]
    mapped: Mapping[str, str]
    missing: Sequence[str]
    ignored: Sequence[str]
    mismatched: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unused: Sequence[str] = ()

    def summary(self) -> str:
        """Returns the counts, and the variables that were renamed or not loaded, as text."""
        total = len(self.mapped) + len(self._unfilled)
        lines = [f"{self.source}: {len(self.mapped)} of {total} variables restored"]
        lines += [f"  from another name: {line}" for line in _renamed_scopes(self.mapped)]
        lines += [
            f"  not in the checkpoint, randomly initialized: {line}"
            for line in _blocks(self.missing)
        ]
        lines += [
            f"  another shape, randomly initialized: {name} is {list(stored)} in the checkpoint, "
            f"but {list(wanted)} in the model"
            for name, stored, wanted in self.mismatched
        ]
        lines += [f"  {why}, randomly initialized: {name}" for name, why in self.skipped.items()]
        if self.ignored:
            lines.append(f"  in the checkpoint only, not used: {', '.join(_blocks(self.ignored))}")
        return "\n".join(map(visible, lines))

    @property
    def _unfilled(self) -> list[str]:
        return [*self.missing, *(row[0] for row in self.mismatched), *self.skipped]

    @property
    def needed(self) -> list[str]:
        """The variables without stored values, except an unused pooler."""
        return [name for name in self._unfilled if name not in self.unused]

    @property
    def _scopes(self) -> tuple[set[str], set[str]]:
        """The scopes with loaded variables, and those with needed variables."""
        filled, unfilled = ({*map(_scope, names)} for names in (self.mapped, self.needed))
        return filled, unfilled

    @property
    def is_usual(self) -> bool:
        """Whether the encoder was loaded completely, and only unknown heads are missing."""
        is_filled = not any(name.startswith(ENCODER_PREFIX) for name in self.needed)
        return is_filled and not (self.mismatched or self.skipped)

    @property
    def has_no_head(self) -> bool:
        """Whether the encoder was loaded completely, but none of the heads."""
        filled, unfilled = self._scopes
        return bool(unfilled) and ENCODER_PREFIX not in unfilled and filled == {ENCODER_PREFIX}

    def check_heads(self, allow_new: bool = False) -> None:
        """Raises `LoadError` if a head is incomplete. With `allow_new`, it may be missing."""
        filled, unfilled = self._scopes
        if unfilled and not (allow_new and filled & unfilled <= {ENCODER_PREFIX}):
            raise LoadError(
                f"{self.source} contains an incomplete head. A head must be complete or absent.\n"
                f"{self.summary()}"
            )

    def check_encoder(self, allow_partial: bool = False) -> None:
        """Raises `LoadError` if the encoder is incomplete, or nothing was loaded."""
        unfilled = [name for name in self.needed if name.startswith(ENCODER_PREFIX)]
        if unfilled:
            check_no_other_model(self.source, self.ignored)
        if not self.mapped:
            raise LoadError(
                f"{self.source} has no variable of this model: expected an ALBERT checkpoint with "
                f"the original release's names. It contains: {listed(self.ignored[:8])} ..."
            )
        if unfilled and not allow_partial:
            remedy = "Pass the configuration of this checkpoint as `albert_config_file`."
            partly = (
                "In commands that train, `init_from_group0` fills models that share fewer "
                "parameters or have more layers, and `allow_partial_checkpoint` accepts missing "
                "variables."
            )
            if all(name.startswith(POOLER) for name in unfilled):
                remedy = "The stored head needs the missing pooler. Replace the head (`new_head`)."
            elif {*unfilled} <= {name for name, *_ in self.mismatched if name in TABLES}:
                partly = GROWING
            raise LoadError(
                f"{self.source} does not fill the encoder: {len(unfilled)} of its variables would "
                f"keep random values. {remedy} {partly}\n{self.summary()}"
            )

    def check_no_block_is_left(self) -> None:
        """Raises `LoadError` if blocks of the checkpoint do not exist in the model.

        A model with fewer groups or more sharing would be filled, but compute something else.
        """
        left = [name for name in self.ignored if TRANSFORMER_SCOPE in name]
        if left:
            raise LoadError(
                f"{self.source} belongs to a model that shares fewer parameters: {len(left)} "
                f"variables of its blocks do not exist in the model, such as {shown(left[0])}. "
                "Pass a configuration with its num_hidden_groups, inner_group_num and "
                "parameter_sharing as `albert_config_file`. In commands that train, "
                "`init_from_group0` initializes each layer from the checkpoint at the same "
                "relative depth, and `allow_partial_checkpoint` uses only the variables with the "
                "same names."
            )

    def check_complete(self) -> None:
        """Raises `LoadError` if a variable that an output depends on was not loaded."""
        if self.needed:
            raise LoadError(
                f"{self.source} does not contain all weights of the model that "
                f"`albert_config_file` describes.\n{self.summary()}"
            )


def _scope(name: str) -> str:
    """Returns the prefix of the encoder or of a pretraining head; "" for all other heads."""
    return next((s for s in (ENCODER_PREFIX, *PRETRAINING_HEADS) if name.startswith(s)), "")


def check_no_other_model(source: str, names: Collection[str]) -> None:
    """Raises `LoadError` if names of variables belong to a known model other than ALBERT."""
    for pattern, model in _OTHER_MODELS.items():
        if name := next((name for name in names if re.search(pattern, name)), None):
            raise LoadError(f"{source} looks like {model}. It contains {shown(name)}.")


def next_step(path: str) -> str:
    """Returns a sentence on a known kind of file or directory, and what to do; otherwise ""."""
    outer = [os.path.join(path, name) for name in folder_names(path)]
    paths = [*outer, *(os.path.join(f, name) for f in outer for name in folder_names(f))]
    models = [f for f in paths if any(fnmatch(n, m) for n in folder_names(f) for m in _MODELS)]
    if models:
        found = ", ".join(sorted(models, key=lambda folder: (len(folder), folder))[:8])
        return f"It has directories with models, such as checkpoints. Pass one of them: {found}."
    for pattern, kind in _OTHER_FILES.items():
        for name in map(os.path.basename, paths or [path]):
            if fnmatch(name, pattern):
                return f"{name} is {kind}."
    return ""


def check_version(module: ModuleType, least: str, path: str) -> None:
    """Raises `LoadError` if a library is so old that opening a file could execute code."""
    found, wanted = (re.findall(r"\d+", text)[:2] for text in (module.__version__, least))
    if [*map(int, found)] < [*map(int, wanted)]:
        name = module.__name__
        raise LoadError(
            f"{path} is not opened: {name} {module.__version__} has known security holes. Run pip "
            f'install "{name}>={least}".'
        )


def check_parameters(path: str, config: AlbertConfig, most: int, num_labels: int = 0) -> None:
    """Raises `LoadError` if a model that is not yet built has more than `most` parameters."""
    count = parameter_counts(config).encoder + config.hidden_size * num_labels
    if count > most:
        raise LoadError(
            f"{path} is incomplete or damaged: its configuration describes a model with {count} "
            f"parameters, but it contains at most {most}."
        )


def _renamed_scopes(mapped: Mapping[str, str]) -> list[str]:
    """Describes each scope that has another name in the checkpoint."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for name, stored in mapped.items():
        if name != stored:
            new, old = name.split("/"), stored.split("/")
            while new and old and new[-1] == old[-1]:
                new, old = new[:-1], old[:-1]
            counts["".join(f"{s}/" for s in new), "".join(f"{s}/" for s in old)] += 1
    return [f"{new}* <- {old}* ({count} variables)" for (new, old), count in counts.items()]


def _blocks(names: Sequence[str]) -> list[str]:
    """Returns the names, with one entry per block."""
    blocks: dict[str, list[str]] = {}
    for name in names:
        match = re.match(r".*/inner_group_\d+/", name)
        blocks.setdefault(match.group() if match else name, []).append(name)
    return [
        f"{block}* ({len(inside)} variables)" if len(inside) > 1 else inside[0]
        for block, inside in blocks.items()
    ]
