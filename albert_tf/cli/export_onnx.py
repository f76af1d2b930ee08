"""Exports a model as an ONNX file.

The file is tested on sample sequences. The differences between its outputs and the outputs of the
model are printed.

    albert_tf export_onnx --model=mrpc --output_file=mrpc.onnx --quantization=int8
"""

from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.export_litert import print_agreements
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
        size, and integer products, which are faster on CPUs.""")
    encoder_only: bool = setting(False, "Export")("""
        Export the encoder without its heads.""")
    output_file: str = setting("model.onnx", "Output")("File to write.")
    dry_run: bool = dry_run_setting()


FLAGS = Flags(OnnxSettings)


def run(settings: OnnxSettings) -> None:
    from albert_tf.tools.exports import export_onnx

    agreements = export_onnx(
        settings.model,
        settings.output_file,
        quantization=settings.quantization,
        encoder_only=settings.encoder_only,
        dry_run=settings.dry_run,
        **settings.parts(),
    )
    if not settings.dry_run:
        print_agreements(settings.output_file, settings.quantization, agreements)


main = command(__name__, __doc__, FLAGS, run, devices="cpu")
