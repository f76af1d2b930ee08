"""Configuration and tokenizer of a model, put together from the places that hold parts of it.

Places that contradict each other are not passed over in silence: heads, activation and vocabulary
leave no trace in the shapes of weights.
"""

from __future__ import annotations

import dataclasses
import os

from absl import logging

from albert_tf.checkpoints.original import read_global_step
from albert_tf.checkpoints.shipped import NAMES, is_shipped
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.model_files.directory import CONFIG_FILE, LOWER_CASE_KEY, essential_differences
from albert_tf.model_files.places import (
    CHECKPOINT_FLAG,
    CONFIG_FLAG,
    EVAL_FLAG,
    HANDLE_FLAG,
    OUTPUT_FLAG,
    ModelPlace,
)
from albert_tf.tokenization import SentencePieceTokenizer, Tokenizer, load_tokenizer
from albert_tf.tokenization.loading import existing_files
from albert_tf.training.depth_schedule import DepthSchedule

FROM_HUB = "from_tf_hub"  # value of --spm_model_file that means the module's tokenizer
# What the shapes of weights tell of a model, and what they do not.
_SHAPES = ("vocab_size", "embedding_size", "hidden_size", "intermediate_size", "num_hidden_groups")
_SHAPELESS = ("num_attention_heads", "hidden_act")

# Pretraining goes on with, and evaluates, checkpoints with the layers they were trained with.
_AT_THEIR_DEPTH = (OUTPUT_FLAG, EVAL_FLAG)

_WAYS = f"""Name a model by one of:
  {HANDLE_FLAG}: a directory of any format, a released tar file, the URL of a TF-Hub
    module, or {NAMES[0]}, which comes with albert_tf;
  {CHECKPOINT_FLAG}: the same, or a checkpoint with {CONFIG_FILE} and tokenizer beside it;
  {CONFIG_FLAG} and --spm_model_file or --vocab_file, with {CHECKPOINT_FLAG} for its weights;
  {OUTPUT_FLAG}: a directory where this command has trained before."""


@dataclasses.dataclass(frozen=True)
class ModelParts:
    """What several places together say of a model.

    Attributes:
        config: the first configuration there is, with `LOWER_CASE_KEY` if any of them says it.
        config_file: where that came from.
        tokenizer: fits the configuration's vocabulary; None where there is none.
        do_lower_case: whether text is lower-cased; True where nothing says it.
    """

    config: AlbertConfig
    config_file: str | None
    tokenizer: Tokenizer | None
    do_lower_case: bool


def model_parts(
    places: list[ModelPlace],
    *,
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    lower_case_from: list[ModelPlace] | None = None,
    tokenizer_from: list[ModelPlace] | None = None,
) -> ModelParts:
    """Finds configuration and tokenizer in places that hold parts of a model.

    Args:
        places: the first one with a configuration gives it.
        spm_model_file: see `model_source`.
        vocab_file: see `model_source`.
        do_lower_case: see `model_source`.
        lower_case_from: the same places in the order in which what they say of that counts; None:
            that of `places`.
        tokenizer_from: in the order in which their tokenizers count.

    Raises:
        ValueError: there is no configuration, or what there is does not belong together.
    """
    config, config_from = _choose_config(places)
    stated = lower_case_from or places
    lower_case = _choose_lower_case(do_lower_case, stated)
    if do_lower_case is not None or any(place.do_lower_case is not None for place in stated):
        config = config.replace(extra={**config.extra, LOWER_CASE_KEY: lower_case})
    tokenizer = _choose_tokenizer(spm_model_file, vocab_file, lower_case, tokenizer_from or places)
    if tokenizer is not None:
        _check_vocabulary(tokenizer, config, config_from)
    return ModelParts(config, config_from.config_file, tokenizer, lower_case)


def _choose_config(places: list[ModelPlace]) -> tuple[AlbertConfig, ModelPlace]:
    """The first configuration there is, and where it comes from; held against the others."""
    for chosen in places:
        if chosen.config is not None:
            for place in places:
                _compare_configs(chosen, place)
                _warn_of_another_depth(chosen.config, place)
            has_weights = any(place.checkpoint for place in places)
            _warn_of_unlike_release(chosen.config, chosen, has_weights)
            return chosen.config, chosen
    found = [f"{place.flag}={place.path}" for place in places if place.checkpoint]
    if found:
        raise ValueError(
            f"{' and '.join(found)} came without {CONFIG_FILE}, or what other formats have for it "
            f"(config.json): give {CONFIG_FLAG} as well."
        )
    raise ValueError(f"No model is named. {_WAYS}")


def _warn_of_unlike_release(config: AlbertConfig, place: ModelPlace, has_weights: bool) -> None:
    """Says so when a model has the shapes of released ones, but other heads or activation.

    Weights do not show either, and files with wrong ones are about. Nor do weights that all layers
    share show how many layers there are; a new model may have any number.
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
            "%s (%s) has the sizes of the released %s, but %s. Weights cannot show which is right: "
            "with a wrong one the model computes something else, and no error comes of it.",
            place.config_file,
            place.flag,
            name,
            "; ".join(
                f"{key} {getattr(config, key)!r} instead of {getattr(same_shapes[name], key)!r}"
                for key in keys
            ),
        )


def _compare_configs(chosen: ModelPlace, place: ModelPlace) -> None:
    """Refuses a configuration that is not the model's; a checkpoint may fill another one."""
    if place.config is None or chosen.config is None or place.checkpoint is None:
        return  # whether the run's own fits, `ModelDirectory` checks
    differences = essential_differences(place.config, chosen.config)
    if not differences:
        return
    message = (
        f"{place.config_file} ({place.flag}) and {chosen.config_file} ({chosen.flag}) describe "
        f"different models: {'; '.join(differences)}."
    )
    if place.is_fixed:
        raise ValueError(f"{message} Leave {chosen.flag} out to take the configuration it brings.")
    logging.warning("%s The second is used.", message)


def _warn_of_another_depth(config: AlbertConfig, place: ModelPlace) -> None:
    """Says so when weights were last trained with fewer layers than the model will apply."""
    if place.config is None or place.checkpoint is None or place.flag in _AT_THEIR_DEPTH:
        return
    schedule = DepthSchedule.recorded(os.path.dirname(place.checkpoint), place.config)
    if schedule is None or not schedule.changes:
        return
    depth = schedule.of_checkpoint(read_global_step(place.checkpoint))
    if depth != config.num_hidden_layers:
        logging.warning(
            "%s (%s) was last trained with %d layers (%s), and %d are applied: give a "
            "configuration with its depth (%s), or a checkpoint from after the last change.",
            place.checkpoint,
            place.flag,
            depth,
            schedule.as_flag(),
            config.num_hidden_layers,
            CONFIG_FLAG,
        )


def _choose_lower_case(flag: bool | None, places: list[ModelPlace]) -> bool:
    """Whether to lower-case: the flag, else what the model says of itself, else True."""
    stated = next((place for place in places if place.do_lower_case is not None), None)
    if stated is None:
        return True if flag is None else flag
    of_model = bool(stated.do_lower_case)
    if flag is None or flag == of_model:
        return of_model
    logging.warning(
        "--do_lower_case=%s, as given, but %s (%s) says the model was made with do_lower_case=%s: "
        "its text looked different. Leave the flag out to take the model's.",
        flag,
        stated.path,
        stated.flag,
        of_model,
    )
    return flag


def _choose_tokenizer(
    spm_model_file: str | None, vocab_file: str | None, lower_case: bool, places: list[ModelPlace]
) -> Tokenizer | None:
    """The tokenizer of the flags, else the first there is; held against that of the weights."""
    of_hub = next((p for p in places if p.flag == HANDLE_FLAG and p.tokenizer_file), None)
    if spm_model_file == FROM_HUB:
        inside = of_hub or next((p for p in places if p.checkpoint and p.tokenizer_file), None)
        if inside is None:
            raise ValueError(
                f"--spm_model_file={FROM_HUB} needs a {HANDLE_FLAG} or {CHECKPOINT_FLAG} that "
                "holds a tokenizer."
            )
        spm_model_file, vocab_file = None, inside.tokenizer_file
    files = existing_files(spm_model_file, vocab_file, of_hub.tokenizer_file if of_hub else None)
    found = [place for place in places if place.tokenizer_file]
    if not (files or found):
        return None
    files = files or {"vocab_file": found[0].tokenizer_file or ""}
    tokenizer = load_tokenizer(**files, do_lower_case=lower_case)
    for place in found:
        if place.checkpoint and place.tokenizer_file not in tokenizer.files:
            _compare_tokenizers(tokenizer, place)
    return tokenizer


def _compare_tokenizers(tokenizer: Tokenizer, place: ModelPlace) -> None:
    """Says so when the tokens of the weights have other ids, and refuses it for a module."""
    theirs = load_tokenizer(vocab_file=place.tokenizer_file)
    if _is_same(theirs, tokenizer, place):
        return
    message = (
        f"{tokenizer.files[0]} ({tokenizer.vocab_size} tokens) is another vocabulary than "
        f"{theirs.files[0]} ({theirs.vocab_size} tokens), which {place.flag} brings: the weights "
        "would see ids they do not know. Leave out --spm_model_file and --vocab_file to take it."
    )
    if place.is_fixed:
        raise ValueError(message)
    logging.warning("%s", message)


def _is_same(theirs: Tokenizer, tokenizer: Tokenizer, place: ModelPlace) -> bool:
    """Whether texts get the same ids; of a model of this package, the same file is wanted."""
    if is_shipped(place.path) and isinstance(tokenizer, SentencePieceTokenizer):
        return (
            isinstance(theirs, SentencePieceTokenizer)
            and theirs.model_proto == tokenizer.model_proto
        )
    return theirs.tokens == tokenizer.tokens


def _check_vocabulary(tokenizer: Tokenizer, config: AlbertConfig, config_from: ModelPlace) -> None:
    """Raises ValueError unless the tokenizer has as many tokens as the configuration says."""
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"The vocabulary {tokenizer.files[0]} has {tokenizer.vocab_size} entries, but "
            f"{config_from.config_file} ({config_from.flag}) says vocab_size {config.vocab_size}. "
            "Give the vocabulary of this model (--spm_model_file, --vocab_file), or the "
            f"configuration that belongs to it ({CONFIG_FLAG})."
        )
