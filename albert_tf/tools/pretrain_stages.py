"""The stages of `pretrain`: each calls the function of a command with the settings of a plan."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.checkpoints.convert import convert
from albert_tf.data.files import (
    expand_shards,
    file_size,
    read_file,
    remove_folder,
    rename,
    write_file,
)
from albert_tf.pretraining.create_data import create_pretraining_data
from albert_tf.pretraining.prepare_text import prepare_text
from albert_tf.pretraining.run import run_pretraining
from albert_tf.pretraining.settings import (
    PrepareTextSettings,
    PretrainingDataSettings,
    PretrainingSettings,
)
from albert_tf.pretraining.vocabulary import train_sentencepiece
from albert_tf.settings import settings_of
from albert_tf.training.settings import OnLog

RUN = "{run}"  # in settings, stands for the output directory
PREPARE, VOCABULARY, RECORDS = "prepare_text", "train_sentencepiece", "create_pretraining_data"
TRAINING, EXPORT = "run_pretraining", "convert_checkpoint"
Row = dict[str, Any]  # name, command, seconds and settings of a stage


def execute(
    row: Row, run: str, devices: Mapping[str, Any], on_log: OnLog | None = None
) -> dict[str, Any]:
    """Runs a stage in the directory `run`. Returns numbers by name.

    `devices` are further settings, which are used by the stages that have them.
    """
    made: dict[str, Any] = dict(row["settings"])
    made |= {n: v.replace(RUN, run) for n, v in made.items() if isinstance(v, str)}

    def complete(kind: Callable[..., Any]) -> Any:
        names = settings_of(kind).keys() - made.keys()
        return kind(**made, **{name: v for name, v in devices.items() if name in names})

    if row["command"] == PREPARE:
        return _prepare(complete(PrepareTextSettings))
    if row["command"] == VOCABULARY:
        train_sentencepiece(**made)
        return {}
    if row["command"] == RECORDS:
        return dict(create_pretraining_data(complete(PretrainingDataSettings)).counts)
    if row["command"] == TRAINING:
        result = run_pretraining(complete(PretrainingSettings), on_log)
        return {"step": result.step, "scores": result.scores}
    remove_folder(made["output_dir"])  # of an earlier plan
    return dict(convert(**made).differences)


def _prepare(settings: PrepareTextSettings) -> dict[str, Any]:
    """Writes the text to files in turn. The last file, with every n-th document, is held out."""
    counts = prepare_text(settings)
    paths = expand_shards(settings.output_file)
    held_out = os.path.join(os.path.dirname(paths[0]), "heldout.txt")
    if counts["documents"] >= len(paths):
        rename(paths[-1], held_out)
        return dict(counts)
    ends = []  # of the few documents
    for path in filter(file_size, paths):
        lines = read_file(path).splitlines(keepends=True)
        cut = len(lines) - -(-len(lines) // len(paths))
        ends += [*lines[cut:], b"\n"]
        write_file(path, b"".join(lines[:cut]))
    write_file(held_out, b"".join(ends))
    return dict(counts)
