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
from albert_tf.checkpoints.facts import (
    Kind,
    Meeting,
    Sources,
    compare,
    config_facts,
    settle,
    stated,
)
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.checkpoints.model_directory import (
    ACCENTS_KEY,
    CONFIG_FILE,
    LOWER_CASE_KEY,
    check_vocabulary,
    find_tokenizer_files,
    stored_rules,
    with_rules,
    with_vocabulary,
)
from albert_tf.checkpoints.report import check_no_other_model
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import existing_files, tokenizer_from_files

_ARGUMENTS = "the arguments"
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
    init_checkpoint: str | StoredModel | None = None,
    eval_checkpoint: str | None = None,
    output_dir: str | None = None,
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
    has_more_layers: bool = False,
) -> StoredModel:
    """Returns a model with the chosen parts, see above.

    The model is `path`, the handle, a checkpoint, or the directory of the configuration, in this
    order. Only `path`, the handle and `init_checkpoint` provide weights.

    Args:
        path: a model of any format, see `load`.
        albert_config_file: an `albert_config.json`, or a `config.json` of transformers.
        albert_hub_module_handle: the same as `path`, except checkpoints. Contradictions to it are
            rejected.
        init_checkpoint: the same as `path`, or a model in memory.
        eval_checkpoint: the same as `path`.
        output_dir: output directory of a training run, which may not exist. Its weights are not
            chosen, because the training loop restores them.
        spm_model_file: a SentencePiece model, or "from_tf_hub" for the tokenizer of the model.
        vocab_file: a WordPiece vocabulary.
        do_lower_case: whether to lower-case text. If `None`, the value of the model is used. The
            default of models without a value is `True`.
        keep_accents: whether to keep accents, for SentencePiece. If `None`, the value of the model
            is used. The default of models without a value is `False`.
        has_more_layers: whether the configuration may have other numbers of layers than the model.

    Raises:
        ValueError: no model is named, the configuration is missing, or `settle` rejects the parts.
    """
    if init_checkpoint == "" and not albert_hub_module_handle:
        raise UserError(
            "`init_checkpoint` is empty. Pass a checkpoint or `albert_hub_module_handle`. To train "
            "from random weights, omit `init_checkpoint`."
        )
    paths = {"init": init_checkpoint, "path": path, "handle": albert_hub_module_handle}
    opened = {
        name: _open(name, path) for name, path in {**paths, "eval": eval_checkpoint}.items() if path
    }
    models = [opened[name] for name in ("path", "handle", "init", "eval") if name in opened]
    named = _without_weights(albert_config_file, "")
    run = _without_weights(output_dir, CONFIG_FILE)
    sources = [*models, *named, *run]

    chosen, config = _choose_config([*named, *sources])
    first = {str(chosen.config_file): config_facts(config)}
    configs = {str(m.config_file): config_facts(m.config) for m in models if m.config}
    strict = {str(model.config_file) for model in models if model.is_strict} - {*first}
    for facts in configs.values() if has_more_layers else ():
        facts["num_hidden_layers"] = None
    settle({**first, **configs}, Meeting.GIVEN, strict=strict)
    _compare_with_releases(first, has_weights=bool(models))
    given = {LOWER_CASE_KEY: do_lower_case, ACCENTS_KEY: keep_accents}
    rules = _choose_rules(given, [*models, *named], run)
    config = with_rules(config, rules)
    lower_case = rules[LOWER_CASE_KEY] is not False
    rules = {LOWER_CASE_KEY: lower_case, ACCENTS_KEY: bool(rules[ACCENTS_KEY])}
    files = _tokenizer_files(spm_model_file, vocab_file, models, opened.get("handle"))
    tokenizer = _choose_tokenizer(files, rules, first, sources)
    notes = (source.stored_tokenizer.note for source in sources)
    return dataclasses.replace(
        next((opened[name] for name in paths if name in opened), StoredModel()),
        config=with_vocabulary(config, None),
        config_file=chosen.config_file,
        stored_tokenizer=StoredTokenizer(loaded=tokenizer, note=next(filter(None, notes), "")),
        **rules,
    )


def _open(name: str, path: str | StoredModel) -> StoredModel:
    """Opens a model. Contradictions to handles and bundled models are rejected."""
    if isinstance(path, StoredModel):
        return path
    is_handle = name == "handle"
    if is_handle and not (tf.io.gfile.isdir(path) or is_indirect(path)):
        raise UserError(
            f"{path} is not a directory. Pass the directory or the URL of a TF-Hub module, or a "
            f"directory with {CONFIG_FILE}, tokenizer and checkpoint. Pass the prefix of a "
            f"checkpoint as `init_checkpoint`. {suggestion(path)}"
        )
    return dataclasses.replace(open_model(path), is_strict=is_handle or is_bundled(path))


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


def _without_weights(path: str | None, name: str) -> list[StoredModel]:
    """Returns the configuration `path`, or file `name` in it, with the tokenizer next to it."""
    if not path:
        return []
    file = os.path.join(path, name) if name else path
    config = read_config(file) if not name or tf.io.gfile.exists(file) else None
    model = StoredModel(
        path=path,
        config=config,
        config_file=file if config else None,
        stored_tokenizer=StoredTokenizer(find_tokenizer_files(os.path.dirname(file))),
        **stored_rules(config),
    )
    return [model]


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


def _compare_with_releases(config: Sources, *, has_weights: bool) -> None:
    """Logs a warning if a model has the shapes of a released model, but differs in other keys."""
    [(where, facts)] = config.items()
    # If all layers share parameters, the shapes do not show the number of layers either.
    is_shared = has_weights and facts["parameter_sharing"] == "all"
    keys = (*_SHAPES, *_SHAPELESS, *["num_hidden_layers"] * is_shared)
    own = {where: {key: facts[key] for key in keys}}
    pairs = [own | {f"the released {name}": config_facts(c)} for name, c in PRESETS.items()]
    compared = [(pair, compare(pair, Meeting.RELEASE)) for pair in pairs]
    similar = [(p, found) for p, found in compared if Kind.SHAPE not in {f.kind for f in found}]
    if similar and all(found for _, found in similar):
        settle(similar[0][0], Meeting.RELEASE)


def _choose_rules(
    given: Mapping[str, Any], models: Sequence[StoredModel], run: Sequence[StoredModel]
) -> dict[str, Any]:
    """Returns whether texts are lower-cased, and accents kept; `None` if it is unknown."""
    sources = {_ARGUMENTS: given, **{model.path: model.rules for model in models}}
    rules = settle(sources, Meeting.GIVEN)
    stating = (where for where, known in sources.items() if known[LOWER_CASE_KEY] is not None)
    first = next(stating, _ARGUMENTS)
    meeting = Meeting.GIVEN if first == _ARGUMENTS else Meeting.RESUME
    return settle({first: rules, **{f"the run in {one.path}": one.rules for one in run}}, meeting)


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
    config: Sources,
    sources: Sequence[StoredModel],
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
    vocabularies, replaced = {chosen.source: chosen.fingerprint}, set()
    for source in having:
        file = source.stored_tokenizer.files[0]
        if file in chosen.files:
            check_vocabulary(source.config, chosen)
        elif source.checkpoint:
            place = f"{source.stored_tokenizer.source or file} of {source.path}"
            vocabularies[place] = tokenizer_from_files(vocab_file=file).fingerprint
            replaced |= {place} if source.is_strict else set()
    settle(stated("vocabulary", vocabularies), Meeting.GIVEN, strict=replaced)
    # Fewer tokens than embeddings are usual in a model, but not in another tokenizer.
    is_new = not any(chosen.files[0] in source.stored_tokenizer.files for source in having)
    [(where, facts)] = config.items()
    sizes = {where: facts["vocab_size"], chosen.source: chosen.vocab_size}
    names = ("num_tokens", *["vocabulary_size"] * is_new)
    settle({where: dict.fromkeys(names, size) for where, size in sizes.items()}, Meeting.GIVEN)
    return chosen
