"""Exports a model as an ONNX file, or as a directory for transformers.js.

Before files are written, their outputs are compared with the outputs of the model. The differences
and the share of equal labels are printed.

    albert_tf export_onnx --model=mrpc --output_file=mrpc.onnx --quantization=int8
    albert_tf export_onnx --model=mrpc --layout=transformers.js --output_dir=mrpc_web
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
    texts: str | None = setting(None, "Export")("""
        File with a text, or a pair separated by a tab, per line, on which the file is compared with
        the model; at most 1,000 are used. Default: 64 English texts for quantized files, and random
        ids for float32.""")
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
    files = {output_file: settings.quantization} if output_file else {}
    if not files:
        from albert_tf.serving.transformers_js import ONNX_FILES

        files = {f"{settings.output_dir}/{file}": kind for file, kind in ONNX_FILES.items()}
    return agreement_lines(files, agreements)


main = command(__name__, __doc__, Flags(OnnxSettings), run, devices="cpu")
