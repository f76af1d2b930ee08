"""Exports a model as a LiteRT (TensorFlow Lite) file.

The file is tested on sample sequences. The differences between its outputs and the outputs of the
model are printed.

    albert_tf export_litert --model=mrpc --output_file=mrpc.tflite --quantization=int8
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import DRY_RUN, MODEL_PARTS, Flag, Groups, model_parts_from_flags
from albert_tf.data.files import file_size

_QUANTIZATIONS = ("none", "float16", "int8")
_LENGTH = 128


FLAGS: Groups = {
    "Model": {
        Flag("model", required=True): "Required. Encoder, pretrained model, classifier or model "
        "for SQuAD 1.1, of any supported format: a directory, a checkpoint, a released tar file, "
        "the URL of a TF-Hub module, or a name such as base_v2 or mini.",
        **MODEL_PARTS,
    },
    "Export": {
        Flag("quantization", "none", choices=_QUANTIZATIONS): "Type of the stored weights. none: "
        "float32. float16: half the size. int8: a quarter of the size, and faster.",
        Flag("max_seq_length", int, at_least=0): "Number of tokens of a sequence, including "
        f"padding; 0 for any length. Default: the length the model was trained with, or {_LENGTH} "
        "if that is unknown.",
        Flag("batch_size", 1, at_least=0): "Number of sequences per batch; 0 for any number.",
    },
    "Output": {Flag("output_file", "model.tflite"): "File to write."},
    "Actions": DRY_RUN,
}


def run() -> None:
    from albert_tf.tools.exports import export_litert

    values = flags.FLAGS
    agreements = export_litert(
        values.model,
        values.output_file,
        quantization=values.quantization,
        max_seq_length=values.max_seq_length,
        batch_size=values.batch_size,
        dry_run=values.dry_run,
        **model_parts_from_flags(values),
    )
    if values.dry_run:
        return
    size = file_size(values.output_file)
    print(f"{values.output_file}: quantization={values.quantization} size={size / 1e6:.1f}MB")
    for name, found in agreements.items():
        print(
            f"  {name}: max_difference={found.difference:.2g} largest={found.largest:.2g} "
            f"cosine={found.cosine:.6f}"
        )


main = command(__name__, __doc__, FLAGS, run, devices="cpu")
