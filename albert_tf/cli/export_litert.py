"""Exports a model as a LiteRT (TensorFlow Lite) file.

Before the file is written, its outputs are compared with the outputs of the model. The differences
and the share of equal labels are printed.

    albert_tf export_litert --model=mrpc --output_file=mrpc.tflite --quantization=int8
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import albert_tf
from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags, ModelParts
from albert_tf.data.files import file_size
from albert_tf.settings import dry_run_setting, required, setting


@dataclass(frozen=True, kw_only=True)
class LiteRTSettings(ModelParts):
    """Settings of `export_litert`."""

    model: str = required("Model")("""
        Encoder, pretrained model, classifier or model for SQuAD 1.1, of any supported format: a
        directory, a checkpoint, a released tar file, the URL of a TF-Hub module, or a name such as
        base_v2 or mini.""")
    quantization: str = setting("none", "Export", choices=("none", "float16", "int8"))("""
        Type of the stored weights. none: float32. float16: half the size. int8: a quarter of the
        size, and faster.""")
    max_seq_length: int | None = setting(None, "Export", at_least=0)("""
        Number of tokens of a sequence, including padding; 0 for any length. Default: the length
        the model was trained with, or 128 if that is unknown.""")
    batch_size: int = setting(1, "Export", at_least=0)("""
        Number of sequences per batch; 0 for any number.""")
    texts: str | None = setting(None, "Export")("""
        File with a text, or a pair separated by a tab, per line, on which the file is compared with
        the model; at most 1,000 are used. Default: 64 English texts for quantized files, and random
        ids for float32.""")
    output_file: str = setting("model.tflite", "Output")("File to write.")
    dry_run: bool = dry_run_setting()


def run(settings: LiteRTSettings) -> Iterator[str]:
    agreements = albert_tf.export_litert(**settings.arguments())
    return agreement_lines({settings.output_file: settings.quantization}, agreements)


def agreement_lines(files: Mapping[str, str], agreements: Mapping[str, Any]) -> Iterator[str]:
    """Yields the quantization and size of files, and the agreement of outputs with the model."""
    for path, quantization in files.items():
        yield f"{path}: quantization={quantization} size={file_size(path) / 1e6:.1f}MB"
    for name, found in agreements.items():
        labels = "" if found.equal is None else f" equal_labels={found.equal:.1%}"
        yield (
            f"  {name}: max_difference={found.difference:.2g} largest={found.largest:.2g} "
            f"cosine={found.cosine:.6f}{labels}"
        )


main = command(__name__, __doc__, Flags(LiteRTSettings), run, devices="cpu")
