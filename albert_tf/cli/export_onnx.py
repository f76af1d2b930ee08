"""Exports a model as an ONNX file, or as a directory for transformers.js.

The files are tested on sample sequences. The differences between their outputs and the outputs of
the model are printed.

    albert_tf export_onnx --model=mrpc --output_file=mrpc.onnx --quantization=int8
    albert_tf export_onnx --model=mrpc --layout=transformers.js --output_dir=mrpc_web
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import albert_tf
from albert_tf.cli.app import command
from albert_tf.cli.export_litert import agreement_lines
from albert_tf.cli.flags import Flags, ModelParts
from albert_tf.settings import dry_run_setting, required, setting


@dataclass(frozen=True, kw_only=True)
class OnnxSettings(ModelParts):
    """Settings of `export_onnx`."""

    model: str = required("Model")("""
        Model of any task and any supported format: a directory, a checkpoint, a released tar file,
        the URL of a TF-Hub module, or a name such as base_v2 or mini.""")
    quantization: str = setting("none", "Export", choices=("none", "float16", "int8"))("""
        Type of the stored weights. none: float32. float16: half the size. int8: a quarter of the
        size, and integer products, for CPUs with instructions for them (VNNI).""")
    encoder_only: bool = setting(False, "Export")("""
        Export the encoder without its heads.""")
    layout: str = setting("file", "Output", choices=("file", "transformers.js"))("""
        Files to write. file: a single file. transformers.js: a directory for browsers and Node.js,
        with files in float32 and int8, the configuration and the tokenizer.""")
    output_file: str | None = setting(None, "Output")("""
        File to write, for --layout=file. Default: model.onnx.""")
    output_dir: str | None = setting(None, "Output")("""
        Directory to write, for --layout=transformers.js. It must be new or empty.""")
    dry_run: bool = dry_run_setting()


def run(settings: OnnxSettings) -> Iterator[str]:
    output_file = settings.output_file or ("model.onnx" if settings.layout == "file" else None)
    agreements = albert_tf.export_onnx(**{**settings.arguments(), "output_file": output_file})
    if output_file:
        return agreement_lines(output_file, settings.quantization, agreements)
    from albert_tf.serving.transformers_js import ONNX_FILES

    return chain.from_iterable(
        agreement_lines(
            f"{settings.output_dir}/{file}",
            quantization,
            {name: v for name, v in agreements.items() if name.startswith(f"{file}:")},
        )
        for file, quantization in ONNX_FILES.items()
    )


main = command(__name__, __doc__, Flags(OnnxSettings), run, devices="cpu")
