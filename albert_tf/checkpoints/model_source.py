"""Chooses configuration, tokenizer and weights of a model from the locations that a user names.

A location is a directory of any format, an output directory, or a single file. Locations are
compared, because the shapes of weights do not show attention heads, activation and vocabulary.
"""

import dataclasses
import os
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.downloads import BUNDLED, is_bundled, suggestion
from albert_tf.checkpoints.formats import open_model
from albert_tf.checkpoints.huggingface import read_config
from albert_tf.checkpoints.huggingface.tokenizer import usable_file
from albert_tf.checkpoints.model_contents import StoredModel
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    LOWER_CASE_KEY,
    check_vocabulary,
    essential_differences,
    find_tokenizer_files,
    with_vocabulary,
)
from albert_tf.checkpoints.report import check_no_other_model
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import existing_files, load_tokenizer

FROM_HUB = "from_tf_hub"  # value of `spm_model_file` that selects the tokenizer of a module

# Keys of the configuration that determine the shapes of the weights, and keys that do not.
_SHAPES = ("vocab_size", "embedding_size", "hidden_size", "intermediate_size", "num_hidden_groups")
_SHAPELESS = ("num_attention_heads", "hidden_act")
_WAYS = f"""Name a model by one of:
  `init_checkpoint`: a directory of any format, a released tar file, the URL of a TF-Hub
    module, the name of a released model such as base_v2, the bundled model {BUNDLED[0]},
    or a checkpoint with {CONFIG_FILE} and tokenizer next to it;
  `albert_hub_module_handle`, of commands that fine-tune: the same, except a checkpoint;
  `albert_config_file` and `spm_model_file` or `vocab_file`, with `init_checkpoint` for its weights;
  `output_dir`: a directory where this command has trained before."""


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Model-related settings, named after the command-line flags. Unset values are `None`."""

    albert_config_file: str | None = None  # path of an `albert_config.json`
    # A directory of any format, a tar file, a URL or a name
    albert_hub_module_handle: str | None = None
    init_checkpoint: str | None = None  # the same, or the prefix or a file of a checkpoint
    eval_checkpoint: str | None = None  # the same as `init_checkpoint`, for evaluation
    output_dir: str | None = None  # output directory of a training run; need not exist
    # SentencePiece model; "from_tf_hub" selects the tokenizer of the handle or checkpoint
    spm_model_file: str | None = None
    vocab_file: str | None = None  # WordPiece vocabulary
    # Whether to lower-case text. If `None`, the value of the model is used, by default `True`.
    do_lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """The parts of a model that `resolve_model` chose."""

    # Configuration. Contains `LOWER_CASE_KEY` if a setting or location sets it.
    config: AlbertConfig
    config_file: str | None  # file of the configuration
    tokenizer: Tokenizer | None  # has at most `config.vocab_size` tokens
    do_lower_case: bool  # whether text is lower-cased
    # Weights, see `StoredModel`. If `None`, weights are random or restored from `output_dir`.
    checkpoint: str | None
    tokenizer_note: str = ""  # why there is no tokenizer, if a location has one

    @property
    def required_tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises `ValueError` if there is none."""
        if self.tokenizer is None:
            raise UserError(
                f"No tokenizer is given, and none exists next to the model ({self.config_file}): "
                f"pass `spm_model_file` or `vocab_file`. {self.tokenizer_note}".rstrip()
            )
        return self.tokenizer


# Each part is read from the first location that contains it. "model" is a location that is already
# open. `do_lower_case`, `spm_model_file` and `vocab_file` have priority over all locations. The
# weights in `output_dir` are not listed, because the training loop restores them.
_PRECEDENCE = {
    "configuration": ("config", "model", "handle", "init", "output", "eval"),
    "tokenizer": ("model", "handle", "init", "config", "output", "eval"),
    "do_lower_case": ("output", "model", "handle", "init", "eval", "config"),
    "weights": ("model", "init", "handle"),
}


def resolve_model(settings: ModelSettings, model: StoredModel | None = None) -> ModelSource:
    """Chooses configuration, tokenizer and weights of the model, see `_PRECEDENCE`.

    `model` is an additional location, which is already open. Raises `ValueError` if no model is
    named, a required part is missing, or parts contradict each other.
    """
    if settings.init_checkpoint == "" and not settings.albert_hub_module_handle:
        raise UserError(
            "`init_checkpoint` is empty. Pass a checkpoint or `albert_hub_module_handle`. To train "
            "from random weights, omit `init_checkpoint`."
        )
    config_file, output_dir = settings.albert_config_file, settings.output_dir
    handle, init = settings.albert_hub_module_handle, settings.init_checkpoint
    locations = {
        "config": _without_weights(config_file, config_file) if config_file else None,
        "model": model,
        "handle": stored_model(handle, is_handle=True) if handle else None,
        "init": stored_model(init) if init else None,
        "eval": stored_model(settings.eval_checkpoint) if settings.eval_checkpoint else None,
        "output": _without_weights(output_dir, os.path.join(output_dir, CONFIG_FILE))
        if output_dir
        else None,
    }

    def locations_of(part: str) -> list[StoredModel]:
        return [stored for name in _PRECEDENCE[part] if (stored := locations[name])]

    config, config_from = _choose_config(locations_of("configuration"))
    having = [s for s in locations_of("do_lower_case") if s.do_lower_case is not None]
    lower_case = _choose_lower_case(settings.do_lower_case, having)
    if settings.do_lower_case is not None or having:
        config = config.replace(extra={**config.extra, LOWER_CASE_KEY: lower_case})
    tokenizer = _choose_tokenizer(settings, lower_case, locations_of("tokenizer"))
    if tokenizer is not None:
        if tokenizer.vocab_size > config.vocab_size:
            raise UserError(
                f"The vocabulary {tokenizer.source} has {tokenizer.vocab_size} entries, but "
                f"{config_from.config_file} sets vocab_size {config.vocab_size}. "
                "Use the vocabulary of this model (`spm_model_file`, `vocab_file`), or the "
                "configuration that belongs to the vocabulary (`albert_config_file`)."
            )
        of_models = (path for s in locations_of("tokenizer") for path in s.tokenizer_files)
        if tokenizer.vocab_size < config.vocab_size and tokenizer.files[0] not in of_models:
            logging.warning(
                "%s has %d tokens, but the model has %d word embeddings (vocab_size). Check that "
                "the model was trained with this vocabulary.",
                tokenizer.source,
                tokenizer.vocab_size,
                config.vocab_size,
            )
    config = with_vocabulary(config, None)
    weights = next((s.checkpoint for s in locations_of("weights")), None) or None
    note = next(filter(None, (s.tokenizer_note for s in locations_of("tokenizer"))), "")
    return ModelSource(config, config_from.config_file, tokenizer, lower_case, weights, note)


def stored_model(path: str, *, is_handle: bool = False) -> StoredModel:
    """Opens a model of any format. `is_handle` rejects checkpoints, and files except tar files."""
    if is_handle and not (tf.io.gfile.isdir(path) or is_indirect(path)):
        raise UserError(
            f"{path} is not a directory. Pass the directory or the URL of a TF-Hub module, or a "
            f"directory with {CONFIG_FILE}, tokenizer and checkpoint. Pass the prefix of a "
            f"checkpoint as `init_checkpoint`. {suggestion(path)}"
        )
    return dataclasses.replace(open_model(path), is_handle=is_handle)


def model_in(albert_directory: str, checkpoint_name: str, is_named: bool) -> str:
    """Returns the path of a checkpoint in a directory of any format.

    If `is_named` is false and the checkpoint does not exist, the directory is returned.
    """
    if is_indirect(albert_directory) and not is_named:
        return albert_directory
    path = os.path.join(albert_directory, checkpoint_name)
    if is_named or tf.io.gfile.exists(f"{path}.index"):
        return path
    logging.info("%s has no %s: using its newest checkpoint", albert_directory, checkpoint_name)
    return albert_directory


def _without_weights(given: str, config_file: str) -> StoredModel:
    """Returns a configuration, if the file exists, and the tokenizer next to it."""
    is_there = given == config_file or tf.io.gfile.exists(config_file)
    config = read_config(config_file) if is_there else None
    return StoredModel(
        given,
        "",
        config=config,
        config_file=config_file if config else None,
        tokenizer_files=find_tokenizer_files(os.path.dirname(config_file)),
        do_lower_case=config.extra.get(LOWER_CASE_KEY) if config else None,
        given=given,
    )


def _choose_config(stored: Sequence[StoredModel]) -> tuple[AlbertConfig, StoredModel]:
    """Returns the first configuration and its location; compares it with the others."""
    for chosen in stored:
        if chosen.config is not None:
            for other in stored:
                _compare_configs(chosen, other)
            has_weights = any(other.checkpoint for other in stored)
            _compare_with_releases(chosen.config, chosen, has_weights)
            return chosen.config, chosen
    found = [other.given for other in stored if other.checkpoint]
    for other in stored:
        if other.checkpoint:
            check_no_other_model(other.checkpoint, other.weights[1])
    if found:
        raise UserError(
            f"{' and '.join(found)} contain no {CONFIG_FILE} or config.json. Pass the "
            f"configuration as `albert_config_file`."
        )
    raise UserError(f"No model is named. {_WAYS}")


def _compare_with_releases(config: AlbertConfig, stored: StoredModel, has_weights: bool) -> None:
    """Logs a warning if a model has the shapes of a released model, but differs in other keys."""
    keys = list(_SHAPELESS)
    # If all layers share parameters, the shapes do not show the number of layers either.
    if has_weights and config.parameter_sharing == "all":
        keys.append("num_hidden_layers")
    unlike = {
        name: [
            f"{key} {getattr(config, key)!r} instead of {getattr(preset, key)!r}"
            for key in keys
            if getattr(config, key) != getattr(preset, key)
        ]
        for name, preset in PRESETS.items()
        if all(getattr(config, key) == getattr(preset, key) for key in _SHAPES)
    }
    if unlike and all(unlike.values()):
        name, differences = next(iter(unlike.items()))
        logging.warning(
            "%s has the sizes of the released %s, but %s. Check these values: the weights do not "
            "show them, and wrong values silently change the outputs.",
            stored.config_file,
            name,
            "; ".join(differences),
        )


def _compare_configs(chosen: StoredModel, stored: StoredModel) -> None:
    if stored.config is None or chosen.config is None or not stored.checkpoint:
        return  # `ModelDirectory` checks the configuration in the output directory
    if differences := essential_differences(stored.config, chosen.config):
        _report(
            stored,
            f"{stored.config_file} and {chosen.config_file} describe different models: "
            f"{'; '.join(differences)}. To use {stored.config_file}, omit {chosen.given}.",
        )


def _report(stored: StoredModel, contradiction: str) -> None:
    """Rejects a contradiction to a TF-Hub module or bundled model; logs it for other models."""
    if stored.is_handle or is_bundled(stored.given):
        raise UserError(contradiction)
    logging.warning("%s", contradiction)


def _choose_lower_case(given: bool | None, having: Sequence[StoredModel]) -> bool:
    if not having:
        return True if given is None else given
    of_model = bool(having[0].do_lower_case)
    if given is None or given == of_model:
        return of_model
    logging.warning(
        "do_lower_case=%s is used, but %s was trained with do_lower_case=%s. Omit the setting to "
        "use the value of the model.",
        given,
        having[0].given,
        of_model,
    )
    return given


def _choose_tokenizer(
    settings: ModelSettings, lower_case: bool, stored: Sequence[StoredModel]
) -> Tokenizer | None:
    """Returns the tokenizer of the settings or the first location; compares it with the others."""
    spm_model_file, vocab_file = settings.spm_model_file, settings.vocab_file
    having = [s for s in stored if s.tokenizer_file]
    of_hub = next((s for s in having if s.is_handle), None)
    if spm_model_file == FROM_HUB:
        source = of_hub or next((s for s in having if s.checkpoint), None)
        if source is None:
            raise UserError(
                f"`spm_model_file`={FROM_HUB} needs an `albert_hub_module_handle` or "
                "`init_checkpoint` that contains a tokenizer."
            )
        spm_model_file, vocab_file, having = None, None, [source, *having]
    files = existing_files(spm_model_file, vocab_file, of_hub.tokenizer_file if of_hub else None)
    usable = {name: usable_file(path) for name, path in files.items()}
    given, files = dict(zip(usable.values(), files.values(), strict=True)), usable
    if not (files or having):
        return None
    if files:
        tokenizer = load_tokenizer(**files, do_lower_case=lower_case)
        tokenizer.source = given.get(tokenizer.source, tokenizer.source)
    else:
        tokenizer = load_stored_tokenizer(having[0], lower_case)
    for other in having:
        if other.tokenizer_file in tokenizer.files:
            check_vocabulary(other.config, tokenizer)
        elif other.checkpoint:
            _compare_tokenizers(tokenizer, other)
    return tokenizer


def load_stored_tokenizer(stored: StoredModel, do_lower_case: bool) -> Tokenizer:
    """Returns the tokenizer of a stored model.

    Raises `ValueError` if the tokenizer files of the model contain different tokens.
    """
    first, *others = stored.tokenizer_files
    if stored.tokenizer_contradiction:
        raise UserError(stored.tokenizer_contradiction)
    source = stored.tokenizer_source or first
    try:
        tokenizer = load_tokenizer(vocab_file=first, do_lower_case=do_lower_case)
    except UserError as error:  # names the file of the user, not a file in the cache
        raise UserError(str(error).replace(first, source)) from error
    tokenizer.source = source
    check_vocabulary(stored.config, tokenizer)
    for path in others:
        tokens = load_tokenizer(vocab_file=path).tokens
        if tokens != tokenizer.tokens:
            raise UserError(
                f"{first} ({tokenizer.vocab_size} tokens) and {path} ({len(tokens)} tokens) belong "
                "to one model but contain different tokens or different ids. Delete the file that "
                "the model was not trained with, or pass the other file as the tokenizer."
            )
    return tokenizer


def _compare_tokenizers(tokenizer: Tokenizer, stored: StoredModel) -> None:
    theirs = load_tokenizer(vocab_file=stored.tokenizer_file)
    if theirs.tokens != tokenizer.tokens:
        _report(
            stored,
            f"{tokenizer.source} ({tokenizer.vocab_size} tokens) is a different vocabulary from "
            f"{stored.tokenizer_source or theirs.source} ({theirs.vocab_size} tokens) in "
            f"{stored.given}: the weights were trained with other token ids. Omit `spm_model_file` "
            "and `vocab_file` to use the vocabulary of the model.",
        )
