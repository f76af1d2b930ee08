"""Which model a command means: configuration, tokenizer and weights from whatever flags name them.

A model comes as a directory of any format (see `checkpoints/formats.py`), such as that of a release
or of a run, as single files, or mixed. What one place lacks is taken from the next
(`parts.py`).
"""

from __future__ import annotations

import dataclasses

from absl import logging

from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import AlbertConfig
from albert_tf.model_files.directory import LOWER_CASE_KEY
from albert_tf.model_files.parts import model_parts
from albert_tf.model_files.places import (
    CHECKPOINT_FLAG,
    HANDLE_FLAG,
    OUTPUT_FLAG,
    ModelPlace,
    place_of_config,
    place_of_directory,
    place_of_model,
)
from albert_tf.tokenization import Tokenizer


@dataclasses.dataclass
class ModelSource:
    """The model a command works with.

    Attributes:
        config: its configuration.
        config_file: where that came from.
        tokenizer: fits the configuration's vocabulary.
        checkpoint: prefix to load weights from, None for random ones (or those of the run in
            `output_dir`).
    """

    config: AlbertConfig
    config_file: str | None
    tokenizer: Tokenizer
    checkpoint: str | None


def model_source(
    *,
    albert_config_file: str | None = None,
    albert_hub_module_handle: str | None = None,
    init_checkpoint: str | None = None,
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    output_dir: str | None = None,
) -> ModelSource:
    """Finds configuration, tokenizer and weights of the model that the flags name.

    Configuration: `albert_config_file`, else the hub handle's, else that beside the checkpoint,
    else the output directory's. Tokenizer: the two files, else that of the same places in the order
    hub handle, checkpoint, configuration, output directory. Weights: the checkpoint, else the hub
    handle's.

    Args:
        albert_config_file: path of an `albert_config.json`.
        albert_hub_module_handle: a directory of any format, a tar file, or a URL.
        init_checkpoint: the same, or a checkpoint's prefix or one of its files. Empty is refused
            unless a hub handle is given; None is not given.
        spm_model_file: SentencePiece model; "from_tf_hub" means the one inside of the hub handle,
            or of the checkpoint.
        vocab_file: WordPiece vocabulary.
        do_lower_case: whether text is lower-cased; None, the flag's not being given, takes what
            the model says, and True where it says nothing.
        output_dir: where a run keeps its model; need not exist.

    Raises:
        ValueError: no model is named, something it needs cannot be found, or what is named does not
            belong together.
    """
    if init_checkpoint == "" and not albert_hub_module_handle:
        raise ValueError(
            f"{CHECKPOINT_FLAG} is given but empty: the model would keep random weights. Give a "
            f"checkpoint, or {HANDLE_FLAG}; to train from random weights, leave the flag out."
        )
    named = place_of_config(albert_config_file) if albert_config_file else None
    hub = place_of_model(albert_hub_module_handle, HANDLE_FLAG)
    init = place_of_model(init_checkpoint, CHECKPOINT_FLAG)
    run = place_of_directory(output_dir, OUTPUT_FLAG) if output_dir else None
    parts = model_parts(
        [p for p in (named, hub, init, run) if p],
        spm_model_file=spm_model_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        # What a run was trained with counts before what it started from.
        lower_case_from=[p for p in (run, hub, init, named) if p],
        tokenizer_from=[p for p in (hub, init, named, run) if p],
    )
    if parts.tokenizer is None:
        places = sorted({place.path for place in (named, hub, init, run) if place})
        raise ValueError(
            f"No tokenizer is given, and none lies beside the model ({', '.join(places)}): give "
            "--spm_model_file or --vocab_file."
        )
    config = parts.config.replace(extra={**parts.config.extra, LOWER_CASE_KEY: parts.do_lower_case})
    return ModelSource(
        config, parts.config_file, parts.tokenizer, _choose_checkpoint(init, hub, run)
    )


def _choose_checkpoint(
    init: ModelPlace | None, hub: ModelPlace | None, run: ModelPlace | None
) -> str | None:
    """The weights to start from; that there are none is said aloud, unless a run has its own."""
    for place in (init, hub):
        if place:
            return place.checkpoint
    directory = TrainingDirectory(run.path) if run else None
    if directory is None or not (directory.newest() or directory.best()):
        logging.warning(
            "RANDOM WEIGHTS: neither %s nor %s is given. Everything is trained from scratch, which "
            "gives poor results on labelled data of ordinary size.",
            CHECKPOINT_FLAG,
            HANDLE_FLAG,
        )
    return None
