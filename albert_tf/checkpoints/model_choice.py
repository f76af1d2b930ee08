"""Chooses the parts of a model: configuration, tokenizer, weights and task.

Each part comes from the argument that names it, otherwise from the model, otherwise from the
previous run in `output_dir`. Otherwise, there is an error. Parts from several sources are compared,
because the shapes of weights do not show attention heads, activation and vocabulary.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.downloads import BUNDLED, is_bundled, suggestion
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.checkpoints.model_directory import (
    ACCENTS_KEY,
    CONFIG_FILE,
    LOWER_CASE_KEY,
    check_vocabulary,
    essential_differences,
    find_tokenizer_files,
    stored_rules,
    with_rules,
    with_vocabulary,
)
from albert_tf.checkpoints.report import check_no_other_model
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer, choose_accents
from albert_tf.config import GROWING, PRESETS, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import existing_files, tokenizer_from_files

FROM_HUB = "from_tf_hub"  # value of `spm_model_file` that selects the tokenizer of the model

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


def choose_model(
    path: str | None = None,
    *,
    albert_config_file: str | None = None,
    albert_hub_module_handle: str | None = None,
    init_checkpoint: str | None = None,
    eval_checkpoint: str | None = None,
    output_dir: str | None = None,
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> StoredModel:
    """Returns a model with the chosen parts, see above.

    The model is `path`, the handle, a checkpoint, or the directory of the configuration, in this
    order. Only `path`, the handle and `init_checkpoint` provide weights.

    Args:
        path: a model of any format, see `load`.
        albert_config_file: an `albert_config.json`, or a `config.json` of transformers.
        albert_hub_module_handle: the same as `path`, except checkpoints. Contradictions to it are
            rejected.
        init_checkpoint: the same as `path`.
        eval_checkpoint: the same as `path`.
        output_dir: output directory of a training run, which may not exist. Its weights are not
            chosen, because the training loop restores them.
        spm_model_file: a SentencePiece model, or "from_tf_hub" for the tokenizer of the model.
        vocab_file: a WordPiece vocabulary.
        do_lower_case: whether to lower-case text. If `None`, the value of the model is used. The
            default of models without a value is `True`.
        keep_accents: whether to keep accents, for SentencePiece. If `None`, the value of the model
            is used. The default of models without a value is `False`.

    Raises:
        ValueError: no model is named, the configuration is missing, or parts contradict each other.
    """
    handle, init = albert_hub_module_handle, init_checkpoint
    if init == "" and not handle:
        raise UserError(
            "`init_checkpoint` is empty. Pass a checkpoint or `albert_hub_module_handle`. To train "
            "from random weights, omit `init_checkpoint`."
        )
    named = _without_weights(albert_config_file, albert_config_file) if albert_config_file else None
    opened = {
        "path": open_model(path) if path else None,
        "handle": _open_handle(handle) if handle else None,
        "init": open_model(init) if init else None,
        "eval": open_model(eval_checkpoint) if eval_checkpoint else None,
    }
    models = [model for model in opened.values() if model]
    run = None
    if output_dir:
        run = _without_weights(output_dir, os.path.join(output_dir, CONFIG_FILE))
    sources = [source for source in (*models, named, run) if source]
    strict = [m for m in models if m is opened["handle"] or is_bundled(m.path)]

    chosen, config = _choose_config([named, *sources] if named else sources)
    for model in models:
        _compare_configs(chosen, model, model in strict)
    _compare_with_releases(config, chosen.config_file, has_weights=bool(models))
    lower_case = _choose_lower_case(do_lower_case, sources, run)
    accents = choose_accents(keep_accents, sources)
    config = with_rules(config, {LOWER_CASE_KEY: lower_case, ACCENTS_KEY: accents})
    rules: dict[str, Any] = {
        LOWER_CASE_KEY: lower_case is not False,
        ACCENTS_KEY: bool(accents),
    }
    files = _tokenizer_files(spm_model_file, vocab_file, models, opened["handle"])
    tokenizer = _choose_tokenizer(files, rules, sources, strict)
    if tokenizer is not None:
        _check_size(tokenizer, config, chosen.config_file, sources)
    return dataclasses.replace(
        opened["init"] or opened["path"] or opened["handle"] or StoredModel(),
        config=with_vocabulary(config, None),
        config_file=chosen.config_file,
        stored_tokenizer=StoredTokenizer(
            loaded=tokenizer,
            note=next(filter(None, (s.stored_tokenizer.note for s in sources)), ""),
        ),
        **rules,
    )


def _open_handle(path: str) -> StoredModel:
    """Opens a model that is not a checkpoint, and no file except a tar file."""
    if not (tf.io.gfile.isdir(path) or is_indirect(path)):
        raise UserError(
            f"{path} is not a directory. Pass the directory or the URL of a TF-Hub module, or a "
            f"directory with {CONFIG_FILE}, tokenizer and checkpoint. Pass the prefix of a "
            f"checkpoint as `init_checkpoint`. {suggestion(path)}"
        )
    return open_model(path)


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


def _without_weights(path: str, config_file: str) -> StoredModel:
    """Returns a configuration, if the file exists, and the tokenizer next to it."""
    is_there = path == config_file or tf.io.gfile.exists(config_file)
    config = read_config(config_file) if is_there else None
    return StoredModel(
        path=path,
        config=config,
        config_file=config_file if config else None,
        stored_tokenizer=StoredTokenizer(find_tokenizer_files(os.path.dirname(config_file))),
        **stored_rules(config),
    )


def _choose_config(sources: Sequence[StoredModel]) -> tuple[StoredModel, AlbertConfig]:
    """Returns the first source with a configuration, and its configuration."""
    for source in sources:
        if source.config is not None:
            return source, source.config
    models = [source for source in sources if source.checkpoint]
    for model in models:
        check_no_other_model(model.checkpoint, model.weights)
    if models:
        raise UserError(
            f"{' and '.join(model.path for model in models)} contain no {CONFIG_FILE} or "
            "config.json. Pass the configuration as `albert_config_file`."
        )
    raise UserError(f"No model is named. {_WAYS}")


def _compare_with_releases(
    config: AlbertConfig, config_file: str | None, *, has_weights: bool
) -> None:
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
            config_file,
            name,
            "; ".join(differences),
        )


def _compare_configs(chosen: StoredModel, model: StoredModel, is_strict: bool) -> None:
    if model.config is None or chosen.config is None:
        return
    if differences := essential_differences(model.config, chosen.config):
        sizes = ("max_position_embeddings", "vocab_size")
        can_grow = all(difference.startswith(sizes) for difference in differences)
        _report(
            f"{model.config_file} and {chosen.config_file} describe different models: "
            f"{'; '.join(differences)}. To use {model.config_file}, omit {chosen.path}."
            + f" {GROWING}"
            * can_grow,
            is_strict,
        )


def _report(contradiction: str, is_strict: bool) -> None:
    """Rejects a contradiction to a TF-Hub module or bundled model; logs it for other models."""
    if is_strict:
        raise UserError(contradiction)
    logging.warning("%s", contradiction)


def _choose_lower_case(
    given: bool | None, sources: Sequence[StoredModel], run: StoredModel | None
) -> bool | None:
    """Returns the argument, otherwise the value of the first source that has one."""
    known = [source for source in sources if source.do_lower_case is not None]
    if given is None and known:
        first = known[0]
        if run and run.do_lower_case not in (first.do_lower_case, None):
            raise UserError(
                f"{run.path} was trained with do_lower_case={run.do_lower_case}, but {first.path} "
                f"sets do_lower_case={first.do_lower_case}. Pass `do_lower_case`, or use another "
                "`output_dir`."
            )
        return first.do_lower_case
    if other := next((source for source in known if source.do_lower_case != given), None):
        logging.warning(
            "do_lower_case=%s is used, but %s was trained with do_lower_case=%s. Omit the setting "
            "to use the value of the model.",
            given,
            other.path,
            other.do_lower_case,
        )
    return given


def _tokenizer_files(
    spm_model_file: str | None,
    vocab_file: str | None,
    models: Sequence[StoredModel],
    handle: StoredModel | None,
) -> dict[str, str]:
    """Returns the paths that name a tokenizer, by argument."""
    if spm_model_file != FROM_HUB:
        of_handle = handle.stored_tokenizer.files if handle else ()
        return existing_files(spm_model_file, vocab_file, next(iter(of_handle), None))
    if not any(model.stored_tokenizer.files for model in models):
        raise UserError(
            f"`spm_model_file`={FROM_HUB} needs an `albert_hub_module_handle` or `init_checkpoint` "
            "that contains a tokenizer."
        )
    return {}


def _choose_tokenizer(
    files: Mapping[str, str],
    rules: Mapping[str, Any],
    sources: Sequence[StoredModel],
    strict: Sequence[StoredModel],
) -> Tokenizer | None:
    """Returns the tokenizer in `files`, otherwise in the first source; compares all sources."""
    having = [source for source in sources if source.stored_tokenizer.files]
    if files:
        spm_model_file, vocab_file = map(files.get, ("spm_model_file", "vocab_file"))
        chosen = tokenizer_from_files(spm_model_file=spm_model_file, vocab_file=vocab_file, **rules)
    elif having:
        first = dataclasses.replace(having[0], **rules)
        chosen = first.required_tokenizer
    else:
        return None
    for source in having:
        file = source.stored_tokenizer.files[0]
        if file in chosen.files:
            check_vocabulary(source.config, chosen)
        elif source.checkpoint:
            _compare_tokenizers(chosen, source, source in strict)
    return chosen


def _compare_tokenizers(tokenizer: Tokenizer, model: StoredModel, is_strict: bool) -> None:
    stored = model.stored_tokenizer
    theirs = tokenizer_from_files(vocab_file=stored.files[0])
    if theirs.tokens != tokenizer.tokens:
        _report(
            f"{tokenizer.source} ({tokenizer.vocab_size} tokens) is a different vocabulary from "
            f"{stored.source or theirs.source} ({theirs.vocab_size} tokens) in {model.path}: the "
            "weights were trained with other token ids. Omit `spm_model_file` and `vocab_file` to "
            f"use the vocabulary of the model. {GROWING}",
            is_strict,
        )


def _check_size(
    tokenizer: Tokenizer,
    config: AlbertConfig,
    config_file: str | None,
    sources: Sequence[StoredModel],
) -> None:
    """Rejects more tokens than word embeddings; logs a warning if a given tokenizer has fewer."""
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"The vocabulary {tokenizer.source} has {tokenizer.vocab_size} entries, but "
            f"{config_file} sets vocab_size {config.vocab_size}. "
            "Use the vocabulary of this model (`spm_model_file`, `vocab_file`), or the "
            f"configuration that belongs to the vocabulary (`albert_config_file`). {GROWING}"
        )
    of_sources = [path for source in sources for path in source.stored_tokenizer.files]
    if tokenizer.vocab_size < config.vocab_size and tokenizer.files[0] not in of_sources:
        logging.warning(
            "%s has %d tokens, but the model has %d word embeddings (vocab_size). Check that "
            "the model was trained with this vocabulary.",
            tokenizer.source,
            tokenizer.vocab_size,
            config.vocab_size,
        )
