"""The command that writes LiteRT files."""

import tensorflow as tf

from tests.programs import run_program

SCRIPT = "albert_tf/cli/export_litert.py"


def test_a_released_model_is_exported_with_its_maximum_length(tmp_path, golden):
    model = golden / "hub" / "albert_directory"
    path = tmp_path / "new" / "encoder.tflite"
    flags = {"model": model, "output_file": path, "batch_size": 0}
    result = run_program(SCRIPT, tmp_path, flags)
    assert result.code == 0, result.output
    assert "quantization=none size=" in result.output
    assert "sequence_output: max_difference=" in result.output
    details = tf.lite.Interpreter(str(path)).get_signature_runner().get_input_details()
    assert details["input_ids"]["shape_signature"].tolist() == [-1, 48]
    assert [entry.name for entry in path.parent.iterdir()] == ["encoder.tflite"]
