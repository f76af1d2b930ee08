"""Tests for preprocessors, used in a process without this package."""

import pickle
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.tf2_hub import writing as tf2_hub_encoder
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.serving.hub import write_preprocessor
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.programs import isolated_python
from tests.small_model import small_config

# The tests of tokenizer graphs check the same ids in this process.
pytestmark = pytest.mark.slow

FILES = {"spm": "small_1000.model", "wordpiece": "vocab.txt"}
LENGTH = 13
TEXTS = ["The lighthouse, in 1,205: Émile's ½ ñandú", "", "中国 " * 40, " far\t", "9," * 5]
OTHERS = ["Is it far?", "the light", "", "no", "x" * 50]
PAIR_LENGTHS = (5, 6, 9, 14, 60)

PROGRAM = """
import pickle, sys
import tensorflow as tf, tensorflow_text

texts, others, lengths, path = pickle.load(open(sys.argv[1], "rb"))

def error(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except tf.errors.InvalidArgumentError as message:
        return str(message)

def numbers(values):
    return tf.nest.map_structure(lambda value: value.numpy(), values)

it = tf.saved_model.load(path)
first, second = it.tokenize(texts), it.tokenize(others)
ids = numbers(it.tokenize.get_special_tokens_dict())
words = tf.RaggedTensor.from_row_splits(first, [0, 2, 3, 3, 5])
dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(it, num_parallel_calls=2)
found = {
    "inputs": numbers(it(texts)),
    "shorter": numbers(it(texts, seq_length=9)),
    "longer": numbers(it(tf.constant(texts), seq_length=tf.constant(50))),
    "none": numbers(it(tf.zeros([0], tf.string))),
    "ids": first.to_list(),
    "special": {name: (int(i), i.dtype.name) for name, i in ids.items()},
    "offsets": [part.to_list() for part in it.tokenize_with_offsets(texts)],
    "pairs": {n: numbers(it.bert_pack_inputs([first, second], seq_length=n)) for n in lengths},
    "words": numbers(it.bert_pack_inputs([words, words], seq_length=20)),
    "one": numbers(it.bert_pack_inputs([first])),
    "rows": [numbers(batch) for batch in dataset],
    "served": numbers(it.signatures["serving_default"](sentences=tf.constant(texts))),
    "shapes": {name: spec.shape.as_list() for name, spec in dataset.element_spec.items()},
    "asset": next(
        tf.io.read_file(asset.asset_path).numpy()
        for name in ("sp_model_file", "vocab_file")
        if (asset := getattr(it, name, None))
    ),
    "too_short": error(it, texts, seq_length=2),
    "too_short_for_two": error(it.bert_pack_inputs, [first, second], seq_length=4),
}
unexpected = {name for name in sys.modules if name.partition(".")[0] in (
    "albert_tf", "sentencepiece", "keras_hub", "tensorflow_hub", "tf_keras")}
assert not unexpected, unexpected
pickle.dump(found, open(sys.argv[2], "wb"))
"""

# One model from texts to the outputs of an encoder, and a model of pairs.
KERAS_PROGRAM = """
import pickle, sys
import tensorflow as tf, tensorflow_text
import tensorflow_hub as hub, tf_keras

texts, others, _, path = pickle.load(open(sys.argv[1], "rb"))
it = hub.load(path)
first, second = (tf_keras.Input([], dtype=tf.string) for _ in range(2))
tokenize = hub.KerasLayer(it.tokenize)
pack = hub.KerasLayer(it.bert_pack_inputs, arguments=dict(seq_length=14))
pair = tf_keras.Model([first, second], pack([tokenize(first), tokenize(second)]))
pooled = hub.KerasLayer(sys.argv[3])(hub.KerasLayer(it)(first))["pooled_output"]
found = {
    "pair": pair([tf.constant(texts), tf.constant(others)]),
    "pooled": tf_keras.Model(first, pooled)(tf.constant(texts)),
}
pickle.dump(tf.nest.map_structure(lambda x: x.numpy(), found), open(sys.argv[2], "wb"))
"""


@pytest.fixture(scope="module", params=["spm", "wordpiece"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(golden: Path, kind) -> Tokenizer:
    return tokenizer_from_files(vocab_file=golden / "tokenizer" / FILES[kind])


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory) -> Path:
    """Writes and moves a preprocessor, and writes the inputs of the program."""
    folder = tmp_path_factory.mktemp("preprocessors")
    written = folder / "written"
    write_preprocessor(str(written), tokenizer, LENGTH)
    path = str(written.rename(folder / "moved"))
    (folder / "task").write_bytes(pickle.dumps((TEXTS, OTHERS, PAIR_LENGTHS, path)))
    return folder


def run(program: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Returns the results of a program without this package."""
    command = [isolated_python(), "-c", program, str(folder / "task"), str(folder / "results")]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return pickle.loads((folder / "results").read_bytes())


@pytest.fixture(scope="module")
def results(folder) -> dict[str, Any]:
    return run(PROGRAM, folder)


def pack(tokenizer: Tokenizer, length: int, *segments: list[list[int]]) -> dict[str, np.ndarray]:
    """Returns the inputs for one or two segments of ids, which are truncated in turns."""
    rows = []
    for row in zip(*segments, strict=True):
        room, lengths = length - len(row) - 1, [0] * len(row)
        while room > 0 and lengths != list(map(len, row)):
            for number, ids in enumerate(row):
                if room > 0 and lengths[number] < len(ids):
                    lengths[number] += 1
                    room -= 1
        tokens, types = [tokenizer.cls_id], [0]
        for number, (ids, kept) in enumerate(zip(row, lengths, strict=True)):
            tokens += [*ids[:kept], tokenizer.sep_id]
            types += [number] * (kept + 1)
        missing = length - len(tokens)
        mask = [1] * len(tokens) + [0] * missing
        rows.append([tokens + [tokenizer.pad_id] * missing, mask, types + [0] * missing])
    columns = np.array(rows, np.int32).reshape(-1, 3, length).transpose(1, 0, 2)
    return dict(zip(("input_word_ids", "input_mask", "input_type_ids"), columns, strict=True))


def assert_equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].dtype == np.int32
        np.testing.assert_array_equal(found[name], values, name)


def test_inputs_of_texts(tokenizer, results):
    ids = tokenizer.encode_batch(TEXTS)
    for name, length in (("shorter", 9), ("longer", 50)):
        assert_equal(results[name], pack(tokenizer, length, ids))
    wanted = pack(tokenizer, LENGTH, ids)
    for name in ("inputs", "served", "one"):
        assert_equal(results[name], wanted)
    rows = {name: np.concatenate([row[name] for row in results["rows"]]) for name in wanted}
    assert_equal(rows, wanted)
    assert set(map(tuple, results["shapes"].values())) == {(None, LENGTH)}
    assert_equal(results["none"], pack(tokenizer, LENGTH, []))


def test_pairs(tokenizer, results):
    ids, others = tokenizer.encode_batch(TEXTS), tokenizer.encode_batch(OTHERS)
    for length in PAIR_LENGTHS:
        assert_equal(results["pairs"][length], pack(tokenizer, length, ids, others))
    words = [ids[0] + ids[1], ids[2], [], ids[3] + ids[4]]
    assert_equal(results["words"], pack(tokenizer, 20, words, words))


def test_ids_offsets_and_special_tokens(tokenizer, results):
    assert results["ids"] == results["offsets"][0] == tokenizer.encode_batch(TEXTS)
    raw = TEXTS[0].encode()
    starts, ends = (part[0] for part in results["offsets"][1:])
    assert b"".join(raw[s:e] for s, e in zip(starts, ends, strict=True)).startswith(b"The")
    assert results["special"] == {
        "start_of_sequence_id": (tokenizer.cls_id, "int32"),
        "end_of_segment_id": (tokenizer.sep_id, "int32"),
        "padding_id": (tokenizer.pad_id, "int32"),
        "mask_id": (tokenizer.mask_id, "int32"),
        "vocab_size": (tokenizer.vocab_size, "int32"),
    }


def test_short_sequences_are_rejected(results):
    assert "seq_length must be at least 3" in results["too_short"]
    assert "seq_length must be at least 5" in results["too_short_for_two"]


def test_vocabulary_is_an_asset(golden, results, kind):
    assert results["asset"] == (golden / "tokenizer" / FILES[kind]).read_bytes()


def test_tf_keras_model_with_an_encoder(folder, tokenizer, results):
    model = AlbertForPretraining(
        small_config(vocab_size=1000, num_hidden_groups=1, inner_group_num=1)
    )
    for number, variable in enumerate(model.weights):
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1, seed=number))
    weights = {name: variable.numpy() for name, variable in original_names(model).items()}
    contents = StoredModel.in_memory(model.config, weights, tokenizer, do_lower_case=True)
    (folder / "encoder").mkdir()
    tf2_hub_encoder.write(str(folder / "encoder"), contents)
    found = run(KERAS_PROGRAM, folder, str(folder / "encoder"))
    assert_equal(found["pair"], results["pairs"][14])
    rows = pack(tokenizer, LENGTH, tokenizer.encode_batch(TEXTS))
    names = zip(("input_ids", "input_mask", "segment_ids"), rows.values(), strict=True)
    wanted = model.encoder(dict(names))["pooled_output"]
    np.testing.assert_allclose(found["pooled"], wanted, rtol=0, atol=1e-6)
