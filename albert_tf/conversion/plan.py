"""What a conversion or an export is going to read and write: said before it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.checkpoints.formats import format_of_weights
from albert_tf.checkpoints.original import is_slot
from albert_tf.conversion.convert import Conversion
from albert_tf.data.disk import free_bytes
from albert_tf.data.files import file_size
from albert_tf.inspection.report import describe_tokenizer, heads
from albert_tf.model_files.contents import ModelContents
from albert_tf.text_layout import Block, byte_text
from albert_tf.tokenization import Tokenizer

_WITH_GRAPHS = ("tf1_hub", "tf2_hub")  # formats that hold more than weights and small files


def conversion_blocks(conversion: Conversion) -> dict[str, Block]:
    """Titled blocks of names and values; what looks wrong under "Warnings"."""
    report, contents = conversion.weights, conversion.contents
    held = {name: value for name, value in contents.weights.items() if name not in report.left_out}
    size = weights_bytes(held) + tokenizer_bytes(contents.tokenizer)
    room = f"about {byte_text(size)}"
    if report.format_name in _WITH_GRAPHS:
        room += ", and its graphs: a few MB"
    return {
        **source_blocks(report.source, report.loaded.source, contents),
        "Target": {
            "format": report.format_name,
            "parameters": count(held),
            "heads": _heads(held),
            "not held": ", ".join(report.left_out) or "nothing",
            conversion.output_flag: report.output_dir,
            **room_rows(report.output_dir, room),
        },
        "Warnings": room_warnings(report.output_dir, size),
    }


def source_blocks(path: str, checkpoint: str, contents: ModelContents) -> dict[str, Block]:
    """What was read of a model.

    Args:
        path: as the user gave it.
        checkpoint: its weights, see `StoredModel`.
        contents: all of it.
    """
    source: Block = {
        "model": path,
        "format": format_of_weights(checkpoint),
        "weights": checkpoint,
        "parameters": count(contents.weights),
        "heads": _heads(contents.weights),
        "optimizer slots taken along": sum(map(is_slot, contents.weights)) or "none",
        "step": contents.global_step or "not known, or 0",
    }
    if contents.task is not None:
        source["trained for"] = contents.task.name
    return {"Source": source, "Tokenizer": describe_tokenizer(contents)}


def _heads(weights: Mapping[str, np.ndarray]) -> str:
    return ", ".join(heads({name: value.shape for name, value in weights.items()})) or "none"


def count(weights: Mapping[str, np.ndarray]) -> int:
    """Returns how many numbers a model has, those of an optimizer left out."""
    return sum(int(value.size) for name, value in weights.items() if not is_slot(name))


def weights_bytes(weights: Mapping[str, np.ndarray]) -> int:
    """Returns what weights take in a file."""
    return sum(value.nbytes for value in weights.values())


def tokenizer_bytes(tokenizer: Tokenizer | None) -> int:
    """Returns what the files of a tokenizer take."""
    return sum(map(file_size, _files(tokenizer)))


def _files(tokenizer: Tokenizer | None) -> Iterable[str]:
    return tokenizer.files if tokenizer else ()


def room_rows(path: str, needed: str) -> Block:
    """What a result takes, and what there is where it is to lie."""
    free = free_bytes(path)
    return {
        "room it takes": needed,
        "room on the disk": "not known" if free is None else byte_text(free),
    }


def room_warnings(path: str, size: int) -> Block:
    """Says so where there is too little room.

    Args:
        path: where the result is to lie.
        size: its bytes, or fewer.
    """
    free = free_bytes(path)
    if free is None or free >= size:
        return {}
    return {"disk": f"{byte_text(size)} are needed and {byte_text(free)} free: make room"}
