"""Tests for directories of transformers.js. The slow test runs them in Node.js."""

import json
import random
import shutil
import subprocess

import numpy as np
import onnxruntime
import pytest
import tokenizers

import albert_tf
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import javascript_files
from albert_tf.checkpoints.stored_task import MULTIPLE_CHOICE, SQUAD_TASKS, TOKENS, StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.labels import Labels
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import original_names
from albert_tf.serving.transformers_js import ONNX_FILES
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer
from tests.programs import ROOT
from tests.text_models import CONFIG, write_model
from tests.unit.test_tokenizer_writing import LINES, train
from tests.unusual_texts import SCRIPTS, UNUSUAL_TEXTS

SCENE = "the café in \u0905\u0928\u094d\u200d\u092f, 1,889 times 👨\u200d👩\u200d👧"
TEXTS = ["a moving film", SCENE]
JAVASCRIPT = {"layout": "transformers.js"}
PAIRS = ["a waste of two hours", "which nobody liked"]
LABELS = Labels(("no", "maybe", "да"))

MODELS = {
    "encoder": (AlbertEncoder, (), None),
    "fill": (AlbertForPretraining, (), None),
    "texts": (AlbertForClassification, (3,), StoredTask("custom", LABELS)),
    "tokens": (
        AlbertForTokenClassification,
        (3,),
        StoredTask(TOKENS, Labels(("O", "B-да", "I-да"))),
    ),
    "answers": (AlbertForQuestionAnswering, (), StoredTask(SQUAD_TASKS[1])),
}
# Class and task of transformers.js.
IN_JAVASCRIPT = {
    "encoder": ("AutoModel", "feature-extraction"),
    "fill": ("AutoModelForMaskedLM", "fill-mask"),
    "texts": ("AutoModelForSequenceClassification", "text-classification"),
    "tokens": ("AutoModelForTokenClassification", "token-classification"),
    "answers": ("AutoModelForQuestionAnswering", "question-answering"),
}


def write(folder, kind, arguments, task, tokenizer) -> str:
    """Writes a model in which every weight matters."""
    model = kind(CONFIG.replace(max_position_embeddings=64), *arguments)
    numbers = np.random.default_rng(4)
    for name, variable in original_names(model).items():
        variable.assign(numbers.normal(size=variable.shape, scale=0.5) + ("gamma" in name))
    return write_model(folder, model, tokenizer, task)


@pytest.fixture(scope="module")
def exported(tokenizer, tmp_path_factory):
    """Returns the directory with one model per task."""
    root = tmp_path_factory.mktemp("models")
    for name, model in MODELS.items():
        path = write(root / f"{name}_source", *model, tokenizer)
        found = albert_tf.export_onnx(path, **JAVASCRIPT, output_dir=root / name)
        assert {key.split(":")[0] for key in found} == set(ONNX_FILES)
    return root


def test_files_and_classes(exported):
    for name in MODELS:
        files = {str(p.relative_to(exported / name)) for p in (exported / name).rglob("*.*")}
        assert files == {*ONNX_FILES, "config.json", "tokenizer.json", "tokenizer_config.json"}
        settings = json.loads((exported / name / "tokenizer_config.json").read_text("utf-8"))
        assert settings["tokenizer_class"] == "AlbertTokenizer"
        with pytest.raises(ValueError, match="an ONNX model"):
            albert_tf.load(exported / name)
    configs = {n: json.loads((exported / n / "config.json").read_text("utf-8")) for n in MODELS}
    assert {name: config["architectures"][0] for name, config in configs.items()} == {
        "encoder": "AlbertModel",
        "fill": "AlbertForMaskedLM",
        "texts": "AlbertForSequenceClassification",
        "tokens": "BertForTokenClassification",
        "answers": "AlbertForQuestionAnswering",
    }
    types = {name: config["model_type"] for name, config in configs.items()}
    assert types == dict.fromkeys(MODELS, "albert") | {"tokens": "bert"}
    assert configs["texts"]["id2label"] == {"0": "no", "1": "maybe", "2": "да"}


def check_ids(path, tokenizer, texts) -> None:
    library = tokenizers.Tokenizer.from_file(str(path))
    found = library.encode_batch(texts, add_special_tokens=False)
    assert [encoding.ids for encoding in found] == [tokenizer.encode(text) for text in texts]


def test_the_tokenizers_library_returns_the_same_ids(exported, tokenizer):
    texts = [text for text in UNUSUAL_TEXTS if "[CLS]" not in text]
    check_ids(exported / "texts" / "tokenizer.json", tokenizer, [*texts, *TEXTS])


FOLDED = {"normalization_rule_name": "nmt_nfkc_cf"}


@pytest.mark.parametrize(
    ("options", "keep_accents"),
    [
        ({}, True),
        ({}, False),
        ({"normalization_rule_name": "nfkc"}, False),
        pytest.param({**FOLDED, "is_cased": True}, False, marks=pytest.mark.slow),
    ],
)
def test_maps_of_characters_are_replaced(options, keep_accents, tmp_path):
    trained = train(LINES, **options)
    tokenizer = SentencePieceTokenizer(trained.model_proto, False, keep_accents=keep_accents)
    files = javascript_files(tokenizer, AlbertConfig(vocab_size=tokenizer.vocab_size))
    rules = files["tokenizer.json"]
    kinds = [rule["type"] for rule in rules["normalizer"]["normalizers"]]
    assert "Precompiled" not in kinds
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(rules), encoding="utf-8")
    check_ids(path, tokenizer, [text for texts in SCRIPTS.values() for text in texts] + TEXTS)


@pytest.mark.parametrize(
    ("kind", "arguments", "task", "message"),
    [
        (AlbertForMultipleChoice, (), StoredTask(MULTIPLE_CHOICE), "AlbertForMultipleChoice"),
        (AlbertForClassification, (1,), StoredTask("custom"), "regression"),
    ],
)
def test_other_models_are_rejected(tmp_path, tokenizer, kind, arguments, task, message):
    path = write(tmp_path / "model", kind, arguments, task, tokenizer)
    with pytest.raises(ValueError, match=message):
        albert_tf.export_onnx(path, **JAVASCRIPT, output_dir=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_bytes_of_unigram_models_are_rejected():
    tokenizer = train(LINES, byte_fallback=True, vocab_size=600)
    with pytest.raises(ValueError, match="byte_fallback"):
        javascript_files(tokenizer, AlbertConfig(vocab_size=600))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "`layout`=file needs `output_file`"),
        ({"output_file": "a.onnx", "output_dir": "b"}, "instead of `output_dir`"),
        ({**JAVASCRIPT, "output_file": "a.onnx"}, "needs `output_dir`"),
        ({"layout": "optimum", "output_dir": "b"}, "optimum"),
        ({**JAVASCRIPT, "output_dir": "b", "quantization": "int8"}, "Omit `quantization`"),
    ],
)
def test_arguments_must_fit_the_layout(arguments, message):
    with pytest.raises(ValueError, match=message):
        albert_tf.export_onnx("mini", **arguments)


def nine_languages() -> list[str]:
    """Returns 2,000 lines of random words in nine languages, with unusual characters."""
    numbers, names = random.Random(5), [name for name in SCRIPTS if name != "emoji"][:9]
    lines = []
    for number in range(2000):
        own = " ".join(SCRIPTS[names[number % 9]]).split()
        words = numbers.choices(own, k=numbers.randint(3, 25))
        words += numbers.choices([*SCRIPTS["emoji"], *UNUSUAL_TEXTS[3:9], "Σ1", "～"], k=2)
        lines.append(numbers.choice([" ", "  ", "\u200b", ". "]).join(words))
    return lines


@pytest.mark.slow
def test_javascript_returns_the_same_ids_and_outputs(exported, tokenizer, tmp_path):
    assert shutil.which("npm"), "This test needs Node.js 20 or newer, with npm."
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run([*install, "@huggingface/transformers@4.3.2"], cwd=tmp_path, check=True)
    albert_tf.export_onnx("mini", **JAVASCRIPT, output_dir=exported / "mini")
    lines = nine_languages()
    models = [
        {"name": name, "kind": kind, "task": task, "texts": TEXTS, "pairs": PAIRS}
        for name, (kind, task) in IN_JAVASCRIPT.items()
    ]
    sentences = {"texts": ["Paris is the [MASK] of France."], "pairs": ["It is old."]}
    models.append({"name": "mini", "kind": "AutoModelForMaskedLM", "task": None, **sentences})
    texts = {"mini": lines, "texts": lines}
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"root": f"{exported}/", "texts": texts, "models": models}))
    program = shutil.copy(ROOT / "tests" / "transformers_js.mjs", tmp_path)
    subprocess.run(["node", program, job, tmp_path / "found.json"], check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    trained = {"mini": albert_tf.load_tokenizer("mini"), "texts": tokenizer}
    for name, ids in found["ids"].items():
        own = trained[name]
        assert ids == [[own.cls_id, *own.encode(line), own.sep_id] for line in lines]
    for model in models:
        own = trained.get(model["name"], tokenizer)
        check_outputs(exported / model["name"], own, model, found["outputs"][model["name"]])
    answers = found["answers"]
    assert len(answers["fill"]) == 5
    assert answers["texts"][0]["label"] in LABELS.names
    assert {token["entity"] for token in answers["tokens"]} <= {"B-да", "I-да"}
    assert answers["answers"]["answer"] in PAIRS[0]


def check_outputs(directory, tokenizer, model, found) -> None:
    """Compares outputs in JavaScript with ONNX Runtime in Python."""
    for dtype, name in zip(("fp32", "q8"), ONNX_FILES, strict=True):
        session = onnxruntime.InferenceSession(str(directory / name))
        names = [output.name for output in session.get_outputs()]
        for kind, pairs in {"texts": None, "pairs": model["pairs"]}.items():
            arrays = tokenizer(model["texts"], pairs, split_special_tokens=False).values()
            inputs = (np.asarray(values, np.int64) for values in arrays)
            keys = [value.name for value in session.get_inputs()]
            results = session.run(names, dict(zip(keys, inputs, strict=True)))
            for key in {*names} - {"sop_logits"}:  # which transformers.js omits
                values = np.array(found[f"{dtype} {kind} {key}"])
                wanted, limit = results[names.index(key)], 1e-4 if dtype == "fp32" else 0.1
                np.testing.assert_allclose(values, wanted, rtol=0, atol=limit, err_msg=key)
