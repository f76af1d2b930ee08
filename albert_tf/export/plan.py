"""What an export is going to read and write: said before it begins."""

from __future__ import annotations

from albert_tf.conversion.plan import (
    Block,
    conversion_blocks,
    count,
    room_rows,
    room_warnings,
    source_blocks,
    tokenizer_bytes,
    weights_bytes,
)
from albert_tf.export.hub import PREPROCESSOR_FLAG, HubExport
from albert_tf.export.litert import LiteRTExport, labels_file
from albert_tf.export.pretrained_weights import WeightsExport
from albert_tf.text_layout import byte_text

# What a parameter takes in a LiteRT file, in bytes: int8 keeps small variables in float32.
_LITERT_BYTES = {"none": 4, "float16": 2, "int8": 1}


def hub_blocks(export: HubExport) -> dict[str, Block]:
    """Titled blocks of names and values; what looks wrong under "Warnings"."""
    blocks = conversion_blocks(export.conversion)
    if export.preprocessor_path:
        size = tokenizer_bytes(export.tokenizer)
        blocks["Preprocessor"] = {
            PREPROCESSOR_FLAG: export.preprocessor_path,
            "length of its results": export.length,
            # The vocabulary stands in its graph, and as a file.
            **room_rows(export.preprocessor_path, f"about {byte_text(2 * size)}, and its graphs"),
        }
    return blocks


def weights_blocks(export: WeightsExport) -> dict[str, Block]:
    """Titled blocks of names and values; what looks wrong under "Warnings"."""
    weights = export.weights
    size = weights_bytes(weights)
    left_out = [name for name in export.contents.weights if name not in weights]
    return {
        **source_blocks(export.model, export.checkpoint, export.contents),
        "Target": {
            "parameters": count(weights),
            "variables": len(weights),
            "not written": ", ".join(left_out) or "nothing",
            "not in the source": ", ".join(export.missing_heads) or "nothing",
            "--export_path": export.export_path,
            **room_rows(export.export_path, f"about {byte_text(size)}"),
        },
        "Warnings": room_warnings(export.export_path, size),
    }


def litert_blocks(export: LiteRTExport) -> dict[str, Block]:
    """Titled blocks of names and values; what looks wrong under "Warnings"."""
    path, parameters = export.output_file, export.parameters
    size = _LITERT_BYTES[export.quantization] * parameters
    names = {"names of its classes": labels_file(path)} if export.class_names else {}
    return {
        "Target": {
            "made of": type(export.exported).__name__,
            "parameters": parameters,
            "quantization": export.quantization,
            "--max_seq_length": export.max_seq_length or "any",
            "--batch_size": export.batch_size or "any",
            export.flag: path,
            **names,
            **room_rows(path, f"about {byte_text(size)}, and its graph"),
        },
        "Warnings": room_warnings(path, size),
    }
