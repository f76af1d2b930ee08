"""Tests for preprocessors, also in a process without this package."""

import importlib
import pickle
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.formats.tf2_hub import writing as tf2_hub_encoder
from albert_tf.checkpoints.stored_model import StoredModel
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

# Without this package: one model from texts to the outputs of an encoder, and a model of pairs.
PROGRAM = """
import pickle, sys
import tensorflow as tf, tensorflow_text
import tensorflow_hub as hub, tf_keras

texts, others, path, encoder, results = pickle.load(open("task", "rb"))
it = hub.load(path)
first, second = (tf_keras.Input([], dtype=tf.string) for _ in range(2))
tokenize = hub.KerasLayer(it.tokenize)
pack = hub.KerasLayer(it.bert_pack_inputs, arguments=dict(seq_length=14))
pair = tf_keras.Model([first, second], pack([tokenize(first), tokenize(second)]))
pooled = hub.KerasLayer(encoder)(hub.KerasLayer(it)(first))["pooled_output"]
found = {
    "pair": pair([tf.constant(texts), tf.constant(others)]),
    "pooled": tf_keras.Model(first, pooled)(tf.constant(texts)),
}
unexpected = {name for name in sys.modules if name.partition(".")[0] in (
    "albert_tf", "sentencepiece", "keras_hub")}
assert not unexpected, unexpected
pickle.dump(tf.nest.map_structure(lambda x: x.numpy(), found), open(results, "wb"))
"""


@pytest.fixture(scope="module", params=["spm", "wordpiece"])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(golden: Path, kind) -> Tokenizer:
    return tokenizer_from_files(vocab_file=golden / "tokenizer" / FILES[kind])


@pytest.fixture(scope="module")
def path(tokenizer, tmp_path_factory) -> str:
    """Writes and moves a preprocessor."""
    written = tmp_path_factory.mktemp("preprocessors") / "written"
    write_preprocessor(str(written), tokenizer, LENGTH)
    return str(written.rename(written.with_name("moved")))


@pytest.fixture(scope="module")
def preprocess(path):
    importlib.import_module("tensorflow_text")  # registers the operations
    return tf.saved_model.load(path)


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


def test_inputs_of_texts(tokenizer, preprocess):
    ids = tokenizer.encode_batch(TEXTS)
    assert_equal(preprocess(TEXTS, seq_length=9), pack(tokenizer, 9, ids))
    longer = preprocess(tf.constant(TEXTS), seq_length=tf.constant(50))
    assert_equal(longer, pack(tokenizer, 50, ids))
    expected = pack(tokenizer, LENGTH, ids)
    assert_equal(preprocess(TEXTS), expected)
    served = preprocess.signatures["serving_default"](sentences=tf.constant(TEXTS))
    assert_equal(served, expected)
    assert_equal(preprocess.bert_pack_inputs([preprocess.tokenize(TEXTS)]), expected)
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2)
    dataset = dataset.map(preprocess, num_parallel_calls=2)
    assert {spec.shape.as_list()[1] for spec in dataset.element_spec.values()} == {LENGTH}
    rows = list(dataset)
    assert_equal({name: tf.concat([row[name] for row in rows], 0) for name in expected}, expected)
    assert_equal(preprocess(tf.zeros([0], tf.string)), pack(tokenizer, LENGTH, []))


def test_pairs(tokenizer, preprocess):
    ids, others = tokenizer.encode_batch(TEXTS), tokenizer.encode_batch(OTHERS)
    first, second = preprocess.tokenize(TEXTS), preprocess.tokenize(OTHERS)
    for length in PAIR_LENGTHS:
        found = preprocess.bert_pack_inputs([first, second], seq_length=length)
        assert_equal(found, pack(tokenizer, length, ids, others))
    words = tf.RaggedTensor.from_row_splits(first, [0, 2, 3, 3, 5])
    found = preprocess.bert_pack_inputs([words, words], seq_length=20)
    rows = [ids[0] + ids[1], ids[2], [], ids[3] + ids[4]]
    assert_equal(found, pack(tokenizer, 20, rows, rows))


def test_ids_offsets_and_special_tokens(tokenizer, preprocess):
    ids, starts, ends = preprocess.tokenize_with_offsets(TEXTS)
    expected = tokenizer.encode_batch(TEXTS)
    assert ids.to_list() == preprocess.tokenize(TEXTS).to_list() == expected
    raw, ranges = TEXTS[0].encode(), zip(starts[0].numpy(), ends[0].numpy(), strict=True)
    assert b"".join(raw[start:end] for start, end in ranges).startswith(b"The")
    special = preprocess.tokenize.get_special_tokens_dict()
    assert {value.dtype for value in special.values()} == {tf.int32}
    assert {name: int(value) for name, value in special.items()} == {
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "padding_id": tokenizer.pad_id,
        "mask_id": tokenizer.mask_id,
        "vocab_size": tokenizer.vocab_size,
    }


def test_short_sequences_are_rejected(preprocess):
    with pytest.raises(tf.errors.InvalidArgumentError, match="seq_length must be at least 3"):
        preprocess(TEXTS, seq_length=2)
    segments = [preprocess.tokenize(TEXTS), preprocess.tokenize(OTHERS)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="seq_length must be at least 5"):
        preprocess.bert_pack_inputs(segments, seq_length=4)


def test_vocabulary_is_an_asset(golden, preprocess, kind):
    asset = getattr(preprocess, "sp_model_file" if kind == "spm" else "vocab_file").asset_path
    assert tf.io.read_file(asset).numpy() == (golden / "tokenizer" / FILES[kind]).read_bytes()


def test_tf_keras_model_with_an_encoder(path, tokenizer, tmp_path):
    model = AlbertForPretraining(
        small_config(vocab_size=1000, num_hidden_groups=1, inner_group_num=1)
    )
    for number, variable in enumerate(model.weights):
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1, seed=number))
    weights = {name: variable.numpy() for name, variable in original_names(model).items()}
    contents = StoredModel.in_memory(model.config, weights, tokenizer, do_lower_case=True)
    encoder, results = tmp_path / "encoder", tmp_path / "results"
    encoder.mkdir()
    tf2_hub_encoder.write(str(encoder), contents)
    task = TEXTS, OTHERS, path, str(encoder), str(results)
    (tmp_path / "task").write_bytes(pickle.dumps(task))
    subprocess.run([isolated_python(), "-c", PROGRAM], cwd=tmp_path, check=True)
    found = pickle.loads(results.read_bytes())
    ids = tokenizer.encode_batch(TEXTS)
    assert_equal(found["pair"], pack(tokenizer, 14, ids, tokenizer.encode_batch(OTHERS)))
    rows = pack(tokenizer, LENGTH, ids)
    names = zip(("input_ids", "input_mask", "segment_ids"), rows.values(), strict=True)
    expected = model.encoder(dict(names))["pooled_output"]
    np.testing.assert_allclose(found["pooled"], expected, rtol=0, atol=1e-6)
