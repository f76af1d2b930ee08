"""Explains files and directories of other programs that contain no readable model."""

import os
from fnmatch import fnmatch

from albert_tf.data.files import folder_names

# Descriptions by a pattern of names, most specific first.
_KINDS = {
    "adapter_*": "of a PEFT adapter, not of a model. Load it with its model, and store "
    "model.merge_and_unload() with save_pretrained",
    "*.onnx": "an ONNX model. Pass the model that it was exported from",
    "*.msgpack": "a Flax model. Load it in transformers 4 with from_pretrained(..., "
    "from_flax=True), and store it with save_pretrained",
    "*.tflite": "a LiteRT model. Pass the model that it was exported from",
    "*.gguf": "a model of llama.cpp. Pass the model that it was converted from",
    "openvino_*": "a model of OpenVINO. Pass the model that it was exported from",
    "*.safetensors": "not named model.safetensors. Rename a copy if it contains the whole model",
    # Other files of the Trainer are training_args.bin, optimizer.pt, scheduler.pt, rng_state.pth.
    "[!t]*.bin": "not named pytorch_model.bin. Rename a copy if it contains the weights",
    "[!ors]*.pt*": "not named pytorch_model.bin. Rename a copy if it contains the weights",
    "*.ckpt": "not named pytorch_model.bin. Rename a copy if PyTorch stored the weights in it",
}
_MODELS = ("*.index", "saved_model.pb", "*model*.safetensors*", "pytorch_model*", "*model*.h5")


def next_step(path: str) -> str:
    """Returns a sentence on a known kind of file or directory, and what to do; otherwise ""."""
    outer = [os.path.join(path, name) for name in folder_names(path)]
    paths = [*outer, *(os.path.join(f, name) for f in outer for name in folder_names(f))]
    models = [f for f in paths if any(fnmatch(n, m) for n in folder_names(f) for m in _MODELS)]
    if models:
        found = ", ".join(sorted(models, key=lambda folder: (len(folder), folder))[:8])
        return f"It has directories with models, such as checkpoints. Pass one of them: {found}."
    for pattern, kind in _KINDS.items():
        for name in map(os.path.basename, paths or [path]):
            if fnmatch(name, pattern):
                return f"{name} is {kind}."
    return ""
