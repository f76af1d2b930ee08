"""Directories of Hugging Face: both ways, against the real transformers and PyTorch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.loading import build_model, empty_model, read_contents
from albert_tf.checkpoints.model_contents import ModelContents
from albert_tf.checkpoints.original.names import original_names
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.data.text_examples import Labels
from albert_tf.tokenization.loading import load_tokenizer
from tests.small_model import LENGTH, encoder_inputs, small_config

PEER = Path(__file__).parents[2] / "huggingface_peer.py"
TOLERANCE = 1e-5
MASKED_LM = {"cls/predictions/output_bias": (31,)}
SENTENCE_ORDER = {"cls/seq_relationship/output_weights": (2, 12)}
MNLI = TrainedTask("mnli", Labels(("contradiction", "entailment", "neutral")))
# Heads, changes of the configuration and task of our models.
OURS = {
    "pretraining": ({**MASKED_LM, **SENTENCE_ORDER}, {}, None),
    "masked_lm": (MASKED_LM, {"hidden_act": "relu"}, None),
    "classifier": ({"output_weights": (3, 12)}, {}, MNLI),
    "regression": ({"output_weights": (1, 12)}, {}, TrainedTask("sts-b")),
    "choice": ({"output_weights": (1, 12)}, {}, TrainedTask("race", max_seq_length=16)),
    "questions": ({"cls/squad/output_weights": (2, 12)}, {}, TrainedTask("squad1.1")),
    "encoder": ({}, {"hidden_act": "linear"}, None),
    "unshared": ({}, {"parameter_sharing": "none", "hidden_act": "tanh"}, None),
    "same_sizes": ({}, {"embedding_size": 12}, None),
}
# Our outputs by the names they have in transformers.
NAMES = {
    "masked_lm_logits": ("prediction_logits", "logits"),
    "sentence_order_logits": ("sop_logits",),
    "logits": ("logits",),
    "start_logits": ("start_logits",),
    "end_logits": ("end_logits",),
    "sequence_output": ("last_hidden_state",),
    "pooled_output": ("pooler_output",),
}
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Caf\u00e9 na\u00efve: it's 3.5 kilos (about 7 pounds), isn't it?",
    "In 1999 there were `` two '' of them, and in 2005 three.",
    "A very-long-word and  two   blanks\tand a tab",
    "unfathomable \u4f60\u597d \u20ac5 \u00a37 \u2013 end",
]


def random_contents(heads, changes, task=None, tokenizer=None) -> ModelContents:
    """A model of ours with random values everywhere."""
    config = small_config(**({"num_hidden_groups": 1} if "parameter_sharing" in changes else {}))
    model = empty_model(config.replace(**changes), heads, task)
    random = np.random.default_rng(len(heads) + 5)
    weights = {
        name: (random.standard_normal(variable.shape) * 0.4 + name.endswith("gamma")).astype("f")
        for name, variable in original_names(model).items()
    }
    return ModelContents(model.config, weights, tokenizer, True, 0, task)


def our_outputs(contents: ModelContents) -> dict[str, np.ndarray]:
    inputs = encoder_inputs()
    if contents.task and contents.task.name == "race":
        inputs = {name: value[None] for name, value in inputs.items()}
    if MASKED_LM.keys() <= contents.weights.keys():
        everywhere = tf.tile(tf.range(LENGTH)[None], [inputs["input_ids"].shape[0], 1])
        inputs["masked_lm_positions"] = everywhere
    return {
        name: np.asarray(value)
        for name, value in build_model(contents)(inputs).items()
        if name in NAMES
    }


def largest_difference(contents: ModelContents, theirs: dict[str, np.ndarray]) -> float:
    """Of all outputs that both have; there must be one at least."""
    differences = []
    for name, value in our_outputs(contents).items():
        found = next((theirs[there] for there in NAMES[name] if there in theirs), None)
        if found is not None:
            differences.append(np.abs(value - found.reshape(value.shape)).max())
    assert differences, sorted(theirs)
    return max(differences)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, golden):
    """Models of both sides, and what transformers computes with them."""
    folder = tmp_path_factory.mktemp("huggingface")
    inputs = {name: value.numpy() for name, value in encoder_inputs().items()}
    np.savez(
        folder / "inputs.npz",
        input_ids=inputs["input_ids"],
        attention_mask=inputs["input_mask"],
        token_type_ids=inputs["segment_ids"],
    )
    (folder / "texts.json").write_text(json.dumps(TEXTS))
    for name, arguments in OURS.items():
        write(folder / "ours" / name, random_contents(*arguments))
    for name, file in (("english", "small_1000.model"), ("chinese", "vocab.txt")):
        tokenizer = load_tokenizer(spm_model_file=golden / "tokenizer" / file)
        contents = random_contents({}, {"vocab_size": tokenizer.vocab_size}, None, tokenizer)
        write(folder / "tokenizers" / name, contents)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, PEER, folder], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return folder


def write(path: Path, contents: ModelContents) -> list[str]:
    path.mkdir(parents=True)
    return huggingface.write(str(path), contents)


def outputs_of(folder: Path, name: str) -> dict[str, np.ndarray]:
    return dict(np.load(folder / "outputs" / f"{name}.npz"))


@pytest.mark.parametrize("name", OURS)
def test_transformers_computes_what_we_compute(folder, name):
    contents = random_contents(*OURS[name])
    assert largest_difference(contents, outputs_of(folder, f"ours-{name}")) < TOLERANCE


@pytest.mark.parametrize(
    "name",
    [
        "pretraining",
        "masked_lm",
        "classifier",
        "regression",
        "choice",
        "questions",
        "encoder",
        "unshared",
    ],
)
def test_we_compute_what_transformers_computes(folder, name):
    contents, report = read_contents(str(folder / "theirs" / name))
    assert not report.ignored
    assert set(report.missing) <= {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert largest_difference(contents, outputs_of(folder, f"theirs-{name}")) < TOLERANCE


@pytest.mark.parametrize(
    "name",
    [
        "half",
        "bfloat16",
        "shards",
        pytest.param("torch", marks=pytest.mark.slow),  # imports PyTorch
        pytest.param("torch_old", marks=pytest.mark.slow),
    ],
)
def test_the_form_of_storage_does_not_matter(folder, name):
    exact, _ = read_contents(str(folder / "theirs" / "pretraining"))
    stored, report = read_contents(str(folder / "theirs" / f"pretraining_{name}"))
    assert not report.ignored
    rounding = {"half": 2**-11, "bfloat16": 2**-8}.get(name, 0.0)
    for variable, value in exact.weights.items():
        assert stored.weights[variable].dtype == np.float32
        np.testing.assert_allclose(stored.weights[variable], value, rounding, 1e-7 * bool(rounding))


def test_what_a_model_was_trained_for_goes_both_ways(folder):
    for name, (_, _, task) in OURS.items():
        stored = huggingface.read(str(folder / "ours" / name), "--model")
        assert stored.task == task
        (folder / "ours" / name / "labels.json").unlink(missing_ok=True)
        without_file = huggingface.read(str(folder / "ours" / name), "--model").task
        assert (without_file and without_file.name) == (task and task.name)
        assert (without_file and without_file.labels) == (task and task.labels)
    assert huggingface.read(str(folder / "theirs" / "classifier"), "--model").task == MNLI
    config = json.loads((folder / "ours" / "regression" / "config.json").read_text())
    assert config["problem_type"] == "regression"


def test_a_classifier_of_tokens_is_not_taken_for_one_of_texts(folder):
    reader = huggingface.open_weights(str(folder / "theirs" / "tokens" / "model.safetensors"))
    shapes = reader.get_variable_to_shape_map()
    assert shapes["classifier.weight"] == [3, 12]
    assert "output_weights" not in shapes


def test_a_masked_lm_head_with_weights_of_its_own_is_refused(folder):
    with pytest.raises(LoadError, match=r"decoder\.weight"):
        read_contents(str(folder / "theirs" / "untied"))


@pytest.mark.parametrize(
    ("name", "file"), [("english", "small_1000.model"), ("chinese", "vocab.txt")]
)
def test_auto_tokenizer_gives_our_ids(folder, golden, name, file):
    tokenizer = load_tokenizer(spm_model_file=golden / "tokenizer" / file)
    found = json.loads((folder / "ids.json").read_text())[name]
    assert found["singles"] == [tokenizer.encode(text) for text in TEXTS]
    first, second = (tokenizer.encode(text) for text in TEXTS[:2])
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert found["pair"]["input_ids"] == [cls, *first, sep, *second, sep]
    assert found["pair"]["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.mark.parametrize(
    ("name", "file"), [("english", "small_1000.model"), ("chinese", "vocab.txt")]
)
def test_a_tokenizer_that_transformers_saved_is_read(folder, golden, name, file, monkeypatch):
    """Version 5 saves no SentencePiece model and no vocabulary, only its tokenizer.json."""
    monkeypatch.setenv("ALBERT_TF_CACHE_DIR", str(folder / "cache"))
    saved = folder / "theirs" / f"tokenizer_{name}"
    assert {path.name for path in saved.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    for path in (folder / "ours" / "encoder").glob("*[!r].[js]*"):
        shutil.copy(path, saved)
    stored = huggingface.read(str(saved), "--model")
    assert stored.do_lower_case is True
    tokenizer = load_tokenizer(spm_model_file=golden / "tokenizer" / file)
    again = load_tokenizer(spm_model_file=stored.tokenizer_file)
    assert again.tokens == tokenizer.tokens
    assert [again.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    (saved / "tokenizer_config.json").unlink()
    assert huggingface.read(str(saved), "--model").do_lower_case is True
