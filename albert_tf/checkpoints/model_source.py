"""Which model a user means: configuration, tokenizer and weights from whatever names them.

A model comes as a directory of any format (see `formats.py`), such as that of a release or of a
training, as single files, or mixed. What one location lacks is taken from the next. Locations that
contradict each other are reported: heads, activation and vocabulary leave no trace in the shapes of
weights.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.formats import ORIGINAL, recognise
from albert_tf.checkpoints.huggingface import read_config
from albert_tf.checkpoints.model_contents import HANDLE_FLAG, StoredModel
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    LOWER_CASE_KEY,
    essential_differences,
    find_tokenizer_files,
)
from albert_tf.checkpoints.names import suggestion
from albert_tf.checkpoints.shipped import NAMES
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import existing_files, load_tokenizer

CONFIG_FLAG = "--albert_config_file"
CHECKPOINT_FLAG = "--init_checkpoint"
EVAL_FLAG = "--eval_checkpoint"
OUTPUT_FLAG = "--output_dir"
FROM_HUB = "from_tf_hub"  # value of --spm_model_file that means the module's tokenizer

# What the shapes of weights tell of a model, and what they do not.
_SHAPES = ("vocab_size", "embedding_size", "hidden_size", "intermediate_size", "num_hidden_groups")
_SHAPELESS = ("num_attention_heads", "hidden_act")
_WAYS = f"""Name a model by one of:
  {CHECKPOINT_FLAG}: a directory of any format, a released tar file, the URL of a TF-Hub
    module, the name of a released model such as base_v2, {NAMES[0]}, bundled with
    albert_tf, or a checkpoint with {CONFIG_FILE} and tokenizer next to it;
  {HANDLE_FLAG}, of commands that fine-tune: the same, but for a checkpoint;
  {CONFIG_FLAG} and --spm_model_file or --vocab_file, with {CHECKPOINT_FLAG} for its weights;
  {OUTPUT_FLAG}: a directory where this command has trained before."""


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """What a user says of the model, by the names of the flags; None for what was not said.

    Attributes:
        albert_config_file: path of an `albert_config.json`.
        albert_hub_module_handle: a directory of any format, a tar file, a URL or a name.
        init_checkpoint: the same, or a checkpoint's prefix or one of its files.
        eval_checkpoint: as `init_checkpoint`, to be evaluated.
        output_dir: where a training keeps its model; need not exist.
        spm_model_file: SentencePiece model; "from_tf_hub" means that of the handle or checkpoint.
        vocab_file: WordPiece vocabulary.
        do_lower_case: None takes what the model says, and True where it says nothing.
    """

    albert_config_file: str | None = None
    albert_hub_module_handle: str | None = None
    init_checkpoint: str | None = None
    eval_checkpoint: str | None = None
    output_dir: str | None = None
    spm_model_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model that is complete but for its values in memory.

    Attributes:
        config: its configuration, with `LOWER_CASE_KEY` where anything says it.
        config_file: where that came from.
        tokenizer: fits the configuration's vocabulary; None where there is none.
        do_lower_case: whether text is lower-cased; True where nothing says it.
        checkpoint: weights, see `StoredModel`; None for random ones (or those of the training in
            `output_dir`).
    """

    config: AlbertConfig
    config_file: str | None
    tokenizer: Tokenizer | None
    do_lower_case: bool
    checkpoint: str | None

    @property
    def required_tokenizer(self) -> Tokenizer:
        """The tokenizer, of a model that cannot do without: ValueError where there is none."""
        if self.tokenizer is None:
            raise ValueError(
                f"No tokenizer is given, and none exists next to the model ({self.config_file}): "
                "pass --spm_model_file or --vocab_file."
            )
        return self.tokenizer


def resolve_model(settings: ModelSettings, model: StoredModel | None = None) -> ModelSource:
    """Finds configuration, tokenizer and weights of the model that a user means.

    Configuration: `albert_config_file`, else the hub handle's, else that beside the checkpoint,
    else the output directory's. Tokenizer: the two files, else that of the same locations in the
    order hub handle, checkpoint, configuration, output directory. Weights: the checkpoint, else the
    hub handle's. A `model` was found already, and no setting names it.

    Raises:
        ValueError: no model is named, something it needs cannot be found, or what is named does not
            belong together.
    """
    if settings.init_checkpoint == "" and not settings.albert_hub_module_handle:
        raise ValueError(
            f"{CHECKPOINT_FLAG} is given but empty: the model would keep random weights. Pass a "
            f"checkpoint, or {HANDLE_FLAG}; to train from random weights, omit the flag."
        )
    path, output_dir = settings.albert_config_file, settings.output_dir
    named = _without_weights(path, CONFIG_FLAG, path) if path else None
    hub = stored_model(settings.albert_hub_module_handle, HANDLE_FLAG)
    init = stored_model(settings.init_checkpoint, CHECKPOINT_FLAG)
    evaluated = stored_model(settings.eval_checkpoint, EVAL_FLAG)
    run = None
    if output_dir:
        run = _without_weights(output_dir, OUTPUT_FLAG, os.path.join(output_dir, CONFIG_FILE))

    def found(*ordered: StoredModel | None) -> list[StoredModel]:
        return [stored for stored in ordered if stored]

    stored = found(named, model, hub, init, run, evaluated)
    config, config_from = _choose_config(stored)
    # What a model was trained with counts before what that began with.
    stating = [
        s for s in found(run, model, hub, init, evaluated, named) if s.do_lower_case is not None
    ]
    lower_case = _choose_lower_case(settings.do_lower_case, stating)
    if settings.do_lower_case is not None or stating:
        config = config.replace(extra={**config.extra, LOWER_CASE_KEY: lower_case})
    tokenizer = _choose_tokenizer(
        settings, lower_case, found(model, hub, init, named, run, evaluated)
    )
    if tokenizer is not None and tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"The vocabulary {tokenizer.files[0]} has {tokenizer.vocab_size} entries, but "
            f"{config_from.config_file} says vocab_size {config.vocab_size}. "
            "Use the vocabulary of this model (--spm_model_file, --vocab_file), or the "
            f"configuration that belongs to it ({CONFIG_FLAG})."
        )
    weights = next((s.checkpoint for s in found(model, init, hub)), None) or None
    return ModelSource(config, config_from.config_file, tokenizer, lower_case, weights)


def stored_model(path: str | None, flag: str = "") -> StoredModel | None:
    """Returns the model of any format at a path; `None` and "" return `None`.

    The prefix of a checkpoint is rejected if `flag` is `HANDLE_FLAG`.

    Raises:
        ValueError: there is no model.
    """
    if not path:
        return None
    if flag == HANDLE_FLAG and not (tf.io.gfile.isdir(path) or is_indirect(path)):
        raise ValueError(
            f"{path} is not a directory. Pass the directory or the URL of a TF-Hub module, "
            f"or a directory with {CONFIG_FILE}, tokenizer and checkpoint; a checkpoint's prefix "
            f"belongs to {CHECKPOINT_FLAG}. {suggestion(path)}"
        )
    return dataclasses.replace(recognise(path), flag=flag)


def model_in(albert_directory: str, checkpoint_name: str, is_named: bool) -> str:
    """Returns the path of the model that --albert_directory and --checkpoint_name mean.

    The default name (`is_named` false) need not be there: the directory, a release or a model of
    any other format, is taken as it is then, with its newest checkpoint.
    """
    if is_indirect(albert_directory) and not is_named:
        return albert_directory
    path = os.path.join(albert_directory, checkpoint_name)
    if is_named or tf.io.gfile.exists(f"{path}.index"):
        return path
    logging.info("%s has no %s: using its newest checkpoint", albert_directory, checkpoint_name)
    return albert_directory


def _without_weights(given: str, flag: str, config_file: str) -> StoredModel:
    """A configuration, which need not be there in a directory, and the tokenizer beside it."""
    is_there = given == config_file or tf.io.gfile.exists(config_file)
    config = read_config(config_file) if is_there else None
    return StoredModel(
        given,
        ORIGINAL,
        "",
        config=config,
        config_file=config_file if config else None,
        tokenizer_files=find_tokenizer_files(os.path.dirname(config_file)),
        do_lower_case=config.extra.get(LOWER_CASE_KEY) if config else None,
        flag=flag,
        given=given,
    )


def _choose_config(stored: Sequence[StoredModel]) -> tuple[AlbertConfig, StoredModel]:
    """The first configuration there is, and where it comes from; compared with the others."""
    for chosen in stored:
        if chosen.config is not None:
            for other in stored:
                _compare_configs(chosen, other)
            has_weights = any(other.checkpoint for other in stored)
            _warn_of_unlike_release(chosen.config, chosen, has_weights)
            return chosen.config, chosen
    found = [other.given for other in stored if other.checkpoint]
    if found:
        raise ValueError(
            f"{' and '.join(found)} came without {CONFIG_FILE}, or what other formats have for it "
            f"(config.json): pass {CONFIG_FLAG} as well."
        )
    raise ValueError(f"No model is named. {_WAYS}")


def _warn_of_unlike_release(config: AlbertConfig, stored: StoredModel, has_weights: bool) -> None:
    """Says so when a model has the shapes of released ones, but other heads or activation.

    Weights do not show either, nor, where all layers share them, how many layers there are; a new
    model may have any number.
    """
    shapeless = list(_SHAPELESS)
    if has_weights and config.parameter_sharing == "all":
        shapeless.append("num_hidden_layers")
    same_shapes = {
        name: preset
        for name, preset in PRESETS.items()
        if all(getattr(preset, key) == getattr(config, key) for key in _SHAPES)
    }
    unlike = {
        name: [key for key in shapeless if getattr(preset, key) != getattr(config, key)]
        for name, preset in same_shapes.items()
    }
    if unlike and all(unlike.values()):
        name, keys = next(iter(unlike.items()))
        logging.warning(
            "%s has the sizes of the released %s, but %s. The weights do not show which is "
            "right, and a wrong value silently changes the outputs.",
            stored.config_file,
            name,
            "; ".join(
                f"{key} {getattr(config, key)!r} instead of {getattr(same_shapes[name], key)!r}"
                for key in keys
            ),
        )


def _compare_configs(chosen: StoredModel, stored: StoredModel) -> None:
    """Refuses a configuration that is not the model's; a checkpoint may fill another one."""
    if stored.config is None or chosen.config is None or not stored.checkpoint:
        return  # whether the run's own fits, `ModelDirectory` checks
    differences = essential_differences(stored.config, chosen.config)
    if not differences:
        return
    message = (
        f"{stored.config_file} and {chosen.config_file} describe "
        f"different models: {'; '.join(differences)}."
    )
    if stored.is_fixed:
        raise ValueError(
            f"{message} Omit the second to use the configuration that comes with the model."
        )
    logging.warning("%s The second is used.", message)


def _choose_lower_case(given: bool | None, stating: Sequence[StoredModel]) -> bool:
    """Whether to lower-case: as given, else what the model says of itself, else True."""
    if not stating:
        return True if given is None else given
    of_model = bool(stating[0].do_lower_case)
    if given is None or given == of_model:
        return of_model
    logging.warning(
        "do_lower_case=%s, as given, but %s says that the model was trained with "
        "do_lower_case=%s. Omit the flag to use the model's setting.",
        given,
        stating[0].given,
        of_model,
    )
    return given


def _choose_tokenizer(
    settings: ModelSettings, lower_case: bool, stored: Sequence[StoredModel]
) -> Tokenizer | None:
    """The tokenizer of the settings, else the first there is; compared with that of the weights."""
    spm_model_file, vocab_file = settings.spm_model_file, settings.vocab_file
    having = [s for s in stored if s.tokenizer_file]
    of_hub = next((s for s in having if s.flag == HANDLE_FLAG), None)
    if spm_model_file == FROM_HUB:
        inside = of_hub or next((s for s in having if s.checkpoint), None)
        if inside is None:
            raise ValueError(
                f"--spm_model_file={FROM_HUB} needs a {HANDLE_FLAG} or {CHECKPOINT_FLAG} that "
                "holds a tokenizer."
            )
        spm_model_file, vocab_file, having = None, None, [inside, *having]
    files = existing_files(spm_model_file, vocab_file, of_hub.tokenizer_file if of_hub else None)
    if not (files or having):
        return None
    if files:
        tokenizer = load_tokenizer(**files, do_lower_case=lower_case)
    else:
        tokenizer = load_stored_tokenizer(having[0], lower_case)
    for other in having:
        if other.checkpoint and other.tokenizer_file not in tokenizer.files:
            _compare_tokenizers(tokenizer, other)
    return tokenizer


def load_stored_tokenizer(stored: StoredModel, do_lower_case: bool) -> Tokenizer:
    """Makes the tokenizer of a stored model that has one.

    Raises:
        ValueError: a file is none of a tokenizer, or two files contain different tokens.
    """
    first, *others = stored.tokenizer_files
    tokenizer = load_tokenizer(vocab_file=first, do_lower_case=do_lower_case)
    for path in others:
        if path.endswith(".json"):
            from albert_tf.checkpoints.huggingface.tokenizer import tokens_in

            try:
                tokens = tokens_in(path)
            except ValueError as error:
                logging.warning("%s is used and cannot be compared: %s", first, error)
                continue
        else:
            tokens = load_tokenizer(vocab_file=path).tokens
        if tokens != tokenizer.tokens:
            raise ValueError(
                f"{first} ({tokenizer.vocab_size} tokens) and {path} ({len(tokens)} tokens) belong "
                "to one model but contain different tokens or different ids. Delete the file that "
                "the model was not trained with, or pass the other one as the tokenizer."
            )
    return tokenizer


def _compare_tokenizers(tokenizer: Tokenizer, stored: StoredModel) -> None:
    """Says so when the tokens of the weights have other ids, and refuses it for a module."""
    theirs = load_tokenizer(vocab_file=stored.tokenizer_file)
    if theirs.tokens == tokenizer.tokens:
        return
    message = (
        f"{tokenizer.files[0]} ({tokenizer.vocab_size} tokens) is a different vocabulary from "
        f"{theirs.files[0]} ({theirs.vocab_size} tokens), which {stored.given} provides: the "
        "weights were trained with other token ids. Omit --spm_model_file and --vocab_file to use "
        "it."
    )
    if stored.is_fixed:
        raise ValueError(message)
    logging.warning("%s", message)
