"""Runs transformers in a separate process, because PyTorch and TensorFlow are incompatible.

    python -m tests.huggingface.peer FOLDER

FOLDER contains `inputs.npz`, `texts.json`, models of this package in `ours/<name>` and tokenizers
in `tokenizers/<name>`. The program writes models of every class of transformers to `theirs/<name>`,
one of them in every storage format, `outputs.npz` of all models, `tokenizers.json`, and
`rules.json`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AlbertConfig, AutoTokenizer

from tests.huggingface import rules
from tests.huggingface.values import token_labels, values_of

SIZES = {
    "vocab_size": 31,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "inner_group_num": 2,
    "max_position_embeddings": 16,
    "type_vocab_size": 5,
}
THREE_LABELS = {"id2label": {0: "contradiction", 1: "entailment", 2: "neutral"}}
CLASSIFICATION = "AlbertForSequenceClassification"
MODELS = {
    "pretraining": ("AlbertForPreTraining", {}),
    "masked_lm": ("AlbertForMaskedLM", {"hidden_act": "relu"}),
    "classifier": (CLASSIFICATION, {**THREE_LABELS, "finetuning_task": "mnli"}),
    "regression": (CLASSIFICATION, {"num_labels": 1, "problem_type": "regression"}),
    "tokens": ("AlbertForTokenClassification", {"num_labels": 3}),
    "choice": ("AlbertForMultipleChoice", {}),
    "questions": ("AlbertForQuestionAnswering", {}),
    "encoder": ("AlbertModel", {"hidden_act": "gelu_pytorch_tanh"}),
    "unshared": ("AlbertModel", {"num_hidden_groups": 4, "hidden_act": "tanh"}),
    "exact_gelu": (CLASSIFICATION, {"hidden_act": "gelu", "num_labels": 3}),
    "python_gelu": ("AlbertModel", {"hidden_act": "gelu_python"}),
    "two_biases": ("AlbertForPreTraining", {}),
}


def random_model(name: str) -> torch.nn.Module:
    """Creates a model with random values in all parameters."""
    kind, changes = MODELS[name]
    model = getattr(transformers, kind)(AlbertConfig(**{**SIZES, **changes}))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            values = values_of(parameter_name, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values))
    return model.eval()


def with_two_biases(path: Path) -> torch.nn.Module:
    """Stores two different biases of the masked-LM head, as models from TensorFlow have them."""
    name, file = "predictions.decoder.bias", path / "model.safetensors"
    tensors = load_file(file)
    tensors[name] = torch.from_numpy(values_of(name, tuple(tensors["predictions.bias"].shape)))
    save_file(tensors, file, metadata={"format": "pt"})
    return transformers.AlbertForPreTraining.from_pretrained(path).eval()


def outputs(model: torch.nn.Module, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the outputs; for multiple choice, the rows are the options of one example."""
    inputs = {name: torch.tensor(value, dtype=torch.long) for name, value in inputs.items()}
    if "MultipleChoice" in type(model).__name__:
        inputs = {name: value[None] for name, value in inputs.items()}
    with torch.no_grad():
        found = model(**inputs, return_dict=True)
    return {name: value.numpy() for name, value in found.items()}


def gradients(model: torch.nn.Module, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the loss of a token classifier and its gradients by parameter."""
    tensors = {name: torch.tensor(value, dtype=torch.long) for name, value in inputs.items()}
    loss = model(**tensors, labels=torch.tensor(token_labels(inputs["attention_mask"]))).loss
    loss.backward()
    found = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    return {"loss": loss.detach().numpy(), **found}


def save_variants(model: torch.nn.Module, folder: Path) -> None:
    """Saves the weights in the other storage formats."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for name, dtype in (("half", torch.float16), ("bfloat16", torch.bfloat16)):
        model.to(dtype).save_pretrained(folder / f"pretraining_{name}")
        model.float().load_state_dict(state)
    model.save_pretrained(folder / "pretraining_shards", max_shard_size="4KB")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in state.items()
    }
    old["albert.embeddings.position_ids"] = torch.arange(16)[None]
    for name, new_format in (("torch", True), ("torch_old", False)):
        target = folder / f"pretraining_{name}"
        target.mkdir()
        torch.save(old, target / "pytorch_model.bin", _use_new_zipfile_serialization=new_format)
        model.config.save_pretrained(target)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    inputs = dict(np.load(folder / "inputs.npz"))
    arrays = {}
    for name in MODELS:
        model = random_model(name)
        model.save_pretrained(folder / "theirs" / name)
        if name == "two_biases":
            model = with_two_biases(folder / "theirs" / name)
        arrays |= {f"theirs/{name}/{key}": value for key, value in outputs(model, inputs).items()}
        if name == "pretraining":
            save_variants(model, folder / "theirs")
    for path in sorted((folder / "ours").iterdir()):
        kind = json.loads((path / "config.json").read_text())["architectures"][0]
        model, report = getattr(transformers, kind).from_pretrained(path, output_loading_info=True)
        assert not report["missing_keys"], report
        assert not report["mismatched_keys"], report
        found = outputs(model, inputs)
        arrays |= {f"ours/{path.name}/{key}": value for key, value in found.items()}
        if path.name == "tokens":
            found = gradients(model, inputs)
            arrays |= {f"gradients/{key}": value for key, value in found.items()}
    np.savez_compressed(folder / "outputs.npz", **arrays)
    tokenizers = {}
    texts = json.loads((folder / "texts.json").read_text())
    for path in sorted((folder / "tokenizers").iterdir()):
        tokenizer = AutoTokenizer.from_pretrained(path)
        tokenizers[path.name] = {
            "singles": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts],
            "pair": dict(tokenizer(texts[0], texts[1])),
        }
        tokenizer.save_pretrained(folder / "theirs" / f"tokenizer_{path.name}")
    (folder / "tokenizers.json").write_text(json.dumps(tokenizers))
    ids: dict[str, Any] = {"transformers": transformers.__version__}
    for name, files in rules.FOLDERS.items():
        tokenizer = AutoTokenizer.from_pretrained(rules.write(folder / "rules" / name, files))
        ids[name] = [tokenizer(text)["input_ids"] for text in rules.TEXTS]
    (folder / "rules.json").write_text(json.dumps(ids) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
