"""Records models of transformers that differ from PyTorch's models in names, biases or activation.

    python -m tests.huggingface.record_variants tensorflow   # transformers 4.57, tf-keras
    python -m tests.huggingface.record_variants torch        # requirements/hf.txt

Writes `recorded/variants_<library>.json`: the version of transformers, the inputs, and for each
model its configuration, the shapes of the stored variables by file, and the outputs.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.huggingface.values import values_of

SIZES = {
    "vocab_size": 31,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "type_vocab_size": 5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
BASE = "AlbertModel"
BLOCKS = {"num_hidden_groups": 2, "inner_group_num": 2}
LENGTHS = (7, 4, 1)
# Class, changes of the configuration, and whether the file is a safetensors file.
OF_TENSORFLOW = {
    "encoder": (BASE, BLOCKS, False),
    "pretraining": ("AlbertForPreTraining", {}, False),
    "exact_gelu": ("AlbertForMaskedLM", {"hidden_act": "gelu"}, False),
    "classifier": ("AlbertForSequenceClassification", {"num_labels": 3}, False),
    "tokens": ("AlbertForTokenClassification", {"num_labels": 3}, False),
    "choice": ("AlbertForMultipleChoice", {}, False),
    "questions": ("AlbertForQuestionAnswering", {}, False),
    "safetensors": ("AlbertForPreTraining", {}, True),
    "shards": ("AlbertForPreTraining", {}, False),
    "safetensors_shards": (BASE, BLOCKS, True),
}
OF_TORCH = {
    "exact_gelu": ("AlbertForSequenceClassification", {"hidden_act": "gelu", "num_labels": 3}),
    "python_gelu": (BASE, {"hidden_act": "gelu_python"}),
    "two_biases": ("AlbertForPreTraining", {}),
}


def inputs(options: bool) -> dict[str, np.ndarray]:
    """Returns a ragged batch; for multiple choice, the rows are the options of one example."""
    places, lengths = np.arange(LENGTHS[0])[None], np.array(LENGTHS)[:, None]
    mask = places < lengths
    arrays = {
        "input_ids": (places * 5 + lengths * 3) % 31 * mask,
        "attention_mask": mask,
        "token_type_ids": (places > 2) * mask,
    }
    return {n: (v[None] if options else v).astype(np.int32) for n, v in arrays.items()}


def seed(name: str) -> str:
    """Returns the name of a variable without group and model, as `values_of` gets it."""
    parts = name.split("/")
    model = next((i for i, part in enumerate(parts) if part.startswith("tf_albert")), -1)
    return "/".join(parts[model + 1 :])


def _stored(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Returns the shapes of the variables in each file of weights."""
    import h5py
    from safetensors.numpy import load_file

    found = {}
    for path in sorted(folder.glob("*.h5")):
        shapes = found[path.name] = {}
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item, shapes=shapes: (
                    shapes.update({name: list(item.shape)})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
    for path in sorted(folder.glob("*.safetensors")):
        found[path.name] = {name: list(v.shape) for name, v in load_file(path).items()}
    return found


def _record_of(folder: Path, outputs: dict) -> dict:
    index = next(iter(folder.glob("*.index.json")), None)
    return {
        "config": json.loads((folder / "config.json").read_text()),
        "files": _stored(folder),
        "index": index and {index.name: json.loads(index.read_text())},
        "outputs": {name: _digits(value) for name, value in outputs.items()},
    }


def _digits(values: Any) -> list:
    """Returns an array as lists of numbers with 7 digits."""
    array = np.asarray(values)
    return np.reshape([float(f"{v:.7g}") for v in array.ravel()], array.shape).tolist()


def of_tensorflow(folder: Path) -> dict[str, dict]:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import transformers

    records = {}
    for name, (kind, changes, is_safe) in OF_TENSORFLOW.items():
        config = transformers.AlbertConfig(**{**SIZES, **changes})
        model = getattr(transformers, f"TF{kind}")(config)
        batch = inputs("MultipleChoice" in kind)
        model(batch)
        for variable in model.weights:
            variable.assign(values_of(seed(variable.name), variable.shape))
        size = "3KB" if name.endswith("shards") else "1GB"
        model.save_pretrained(folder / name, safe_serialization=is_safe, max_shard_size=size)
        records[name] = _record_of(folder / name, model(batch))
    return records


def of_torch(folder: Path) -> dict[str, dict]:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    records = {}
    for name, (kind, changes) in OF_TORCH.items():
        model_class = getattr(transformers, kind)
        model_class(transformers.AlbertConfig(**{**SIZES, **changes})).save_pretrained(
            folder / name
        )
        path = folder / name / "model.safetensors"
        tensors = load_file(path)
        if name == "two_biases":  # as after `from_pretrained(..., from_tf=True)`
            tensors["predictions.decoder.bias"] = tensors["predictions.bias"]
        tensors = {n: torch.from_numpy(values_of(n, tuple(v.shape))) for n, v in tensors.items()}
        save_file(tensors, path, metadata={"format": "pt"})
        batch = {n: torch.tensor(v, dtype=torch.long) for n, v in inputs(False).items()}
        with torch.no_grad():
            outputs = model_class.from_pretrained(folder / name).eval()(**batch)
        records[name] = _record_of(folder / name, outputs)
    return records


def recorded(library: str) -> Path:
    return Path(__file__).parent / "recorded" / f"variants_{library}.json"


def main(library: str) -> None:
    import transformers

    with tempfile.TemporaryDirectory() as temporary:
        records = {"tensorflow": of_tensorflow, "torch": of_torch}[library](Path(temporary))
    content = {"transformers": transformers.__version__, "models": records}
    recorded(library).write_text(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
