"""Tests for tokenizer graphs, compared with the Python tokenizers."""

import json
import random
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
import tensorflow as tf
from packaging.version import Version

from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.serving.tokenizer_graph.characters import MAX_WORD_CHARACTERS
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer
from tests.huggingface import accents
from tests.programs import ROOT, warm_python
from tests.usual import usual

pytestmark = pytest.mark.usefixtures("eager")
KINDS = ("spm_lower", "spm_cased", "wordpiece_lower", "wordpiece_cased", "accents_lower")
KINDS += ("accents_cased", "bytes_cased")
SETTLES_TIES_AS_BEFORE = Version(sentencepiece.__version__) < Version("0.2.2")
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
# Lower case concerns only the characters, which other tests compare for every kind.
EVERY_CLASS = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in KINDS[1:6:2])) for k in KINDS]
)

# Characters that change lengths, order or their neighbors, in groups that interact.
POOLS = [
    [*map(chr, range(0x20, 0x7F))],
    [*"  \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u3000´`¨a,"],
    [*"ΣσAa'\u0301\u0345ʰ\xad\u200e𝚺ϹİI,. "],
    [*"0199,, ½\u200e´，x"],
    [*"\u1715\u302e\u302f\U00016ff0\U0001d165\U0001d15f\u034f\u0301\u0323Åa "],
    [*"\x00\x01\x7f\ufffd\ufeff\u200b\uffff a"],
    [*map(chr, range(0xC0, 0x250))],
    [*map(chr, range(0x4E00, 0x4E80)), *map(chr, range(0xFA60, 0xFAF8)), "。"],
    [*map(chr, range(0xAC00, 0xAC80)), *"ｶﾞ각한"],
    [*"😀👩‍👩‍👧🇩🇪🄊﷽ﬁ㌔⒈…™Å"],
    [*map(chr, range(0xD800)), *map(chr, range(0xE000, 0x110000))],
]


# Vietnamese, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Bengali, Thai, Japanese and Korean.
SCRIPTS = "1E00-1F00 370-400 400-530 590-600 600-700 900-980 980-A00 E00-E80 3040-3100 AC00-AC80"


# The 66 code points that are not characters. TensorFlow 2.19 rejects them.
NO_CHARACTERS = [
    *range(0xFDD0, 0xFDF0),
    *(p + i for p in range(0, 0x110000, 0x10000) for i in (0xFFFE, 0xFFFF)),
]
HAS_NO_CHARACTERS = tf.strings.unicode_encode([0xFFFF], "UTF-8").numpy() == "\uffff".encode()
LEFT_OUT = {} if HAS_NO_CHARACTERS else dict.fromkeys(NO_CHARACTERS)


def random_text(rng: random.Random) -> str:
    pools = [rng.choice(POOLS)] if rng.random() < 0.7 else POOLS
    text = "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(0, 24)))
    return text.translate(LEFT_OUT)


@pytest.fixture(scope="module")
def texts(golden: Path) -> list[str]:
    recorded = json.loads((golden / "tokenizer" / "cases.json").read_text(encoding="utf-8"))
    rng = random.Random(20)
    long = ["a" * 200 + " " + "é" * 200 + "." + "é" * 201, "9," * 3000, "中" * 2000]
    samples = [random_text(rng) for _ in range(1000)]
    return [*(case["text"] for case in recorded["cases"]), *samples, *long, "", " \t "]


@pytest.fixture(scope="module")
def make(golden: Path, tmp_path_factory):
    """Returns a function that creates the Python tokenizer of a kind and its graph, once."""

    @cache
    def pair(kind: str) -> tuple[Tokenizer, GraphTokenizer]:
        name, _, casing = kind.partition("_")
        file = golden / "tokenizer" / ("small_1000.model" if name == "spm" else "vocab.txt")
        keep_accents = name in ("accents", "bytes")
        if keep_accents:
            path = tmp_path_factory.mktemp(name) / "spiece.model"
            file = accents.write_model(path, has_bytes=name == "bytes")
        tokenizer = tokenizer_from_files(
            vocab_file=file, do_lower_case=casing == "lower", keep_accents=keep_accents
        )
        return tokenizer, GraphTokenizer(tokenizer)

    return pair


def lines_of_scripts(number: int) -> list[str]:
    rng, lines = random.Random(21), []
    for script in SCRIPTS.split():
        characters = range(*(int(number, 16) for number in script.split("-")))
        pool = [*map(chr, characters), *" aeN9,\u0301\u0323½"]
        lines += ["".join(rng.choices(pool, k=rng.randint(1, 12))) for _ in range(number)]
    return lines


@pytest.mark.parametrize("kind", ["accents_lower", "bytes_cased"])
def test_ids_of_scripts_equal_python(make, kind):
    tokenizer, graph = make(kind)
    lines = lines_of_scripts(1000)
    found = graph.tokenize([line.encode() for line in lines]).to_list()
    for line, ids, expected in zip(lines, found, tokenizer.encode_batch(lines), strict=True):
        assert ids == expected or is_tie(tokenizer, line, ids), ascii(line)


def is_tie(tokenizer: Tokenizer, text: str, ids: list[int]) -> bool:
    """Returns whether SentencePiece chose another segmentation with the same score.

    Versions from 0.2.2 on resolve ties differently from tensorflow-text.
    """
    wanted = tokenizer.encode(text)
    if not isinstance(tokenizer, SentencePieceTokenizer) or SETTLES_TIES_AS_BEFORE or ids == wanted:
        return False
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_proto)
    total, other = (sum(processor.get_score(i) for i in row) for row in (wanted, ids))
    return abs(total - other) < 1e-5


def in_bytes(text: str, places: Sequence[int]) -> list[int]:
    before = [0]
    for character in text:
        before.append(before[-1] + len(character.encode()))
    return [before[place] for place in places]


@pytest.mark.parametrize("kind", usual(KINDS, "spm_lower", "wordpiece_lower", "bytes_cased"))
def test_ids_and_offsets_equal_python(make, texts, kind):
    tokenizer, graph = make(kind)
    encoded = [text.encode() for text in texts]
    ids = graph.tokenize(encoded)
    assert ids.dtype == tf.int32
    for text, found in zip(texts, ids.to_list(), strict=True):
        assert found == tokenizer.encode(text) or is_tie(tokenizer, text, found), ascii(text)
    located = graph.tokenize_with_offsets(encoded)
    assert [part.dtype for part in located] == [tf.int32] * 3
    columns = zip(*(part.to_list() for part in located), strict=True)
    for text, found in zip(texts, columns, strict=True):
        ids, starts, ends = tokenizer.encode_with_offsets(text)
        if is_tie(tokenizer, text, found[0]):
            continue
        wanted = (ids, in_bytes(text, starts), in_bytes(text, ends))
        assert found == wanted, ascii(text)


@pytest.mark.parametrize("kind", ["spm_lower", "spm_cased", "accents_lower", "accents_cased"])
def test_normalization_equals_python(make, texts, kind):
    tokenizer, graph = make(kind)
    cleaned = graph.clean([text.encode() for text in texts]).numpy()
    assert [text.decode() for text in cleaned] == list(map(tokenizer.clean, texts))


@EVERY_KIND
def test_pipelines_and_empty_batches(make, kind):
    tokenizer, graph = make(kind)
    texts = ["Ein Café, 1,205 m", "", "中国 ½"]
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(graph.tokenize)
    assert [row for ids in dataset for row in ids.to_list()] == tokenizer.encode_batch(texts)
    nothing = tf.zeros([0], tf.string)
    assert graph.tokenize(nothing).to_list() == []
    assert [part.to_list() for part in graph.tokenize_with_offsets(nothing)] == [[], [], []]


FORGETTING = """
import sys, keras
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.tokenization.loading import tokenizer_from_files

graph = GraphTokenizer(tokenizer_from_files(spm_model_file=sys.argv[1]))
ids = graph.tokenize(["light"]).to_list()
for forget in (lambda: keras.utils.set_random_seed(1), keras.backend.clear_session):
    forget()
    assert graph.tokenize(["light"]).to_list() == ids
"""


def test_seeds_and_cleared_sessions_keep_the_tokenizer(golden):
    """In another process, because they delete all kernels, which other tests would create again."""
    model = golden / "tokenizer" / "small_1000.model"
    subprocess.run([warm_python(), "-c", FORGETTING, model], check=True, cwd=ROOT)


@EVERY_CLASS
def test_invalid_utf8(make, kind):
    tokenizer, graph = make(kind)
    damaged = [b"caf\xe9 light", b"\xe4\xb8 light", b"light \xff"]
    texts = ["caf\ufffd light", "\ufffd light", "light \ufffd"]
    ids, starts, ends = (part.to_list() for part in graph.tokenize_with_offsets(damaged))
    assert graph.tokenize(damaged).to_list() == ids == tokenizer.encode_batch(texts)
    for row, (raw, text) in enumerate(zip(damaged, texts, strict=True)):
        wanted = tokenizer.encode_with_offsets(text)
        # An invalid character has fewer bytes than U+FFFD, which has three.
        missing = len(text.encode()) - len(raw)
        place = len(text[: text.index("\ufffd")].encode())
        for found, characters in ((starts, wanted.starts), (ends, wanted.ends)):
            places = in_bytes(text, characters)
            assert found[row] == [p - missing if p > place else p for p in places]


@pytest.mark.parametrize("kind", usual(KINDS, "spm_lower", "wordpiece_lower"))
def test_long_words_are_rejected(make, kind):
    tokenizer, graph = make(kind)
    # Characters that decompose into six count as six for SentencePiece.
    decomposed = "㌖" * (MAX_WORD_CHARACTERS // 6 + 1)
    rejected = [word * (MAX_WORD_CHARACTERS + 1) for word in "a😀"]  # of one and four bytes
    if kind.startswith("spm"):  # with `keep_accents`, SentencePiece decomposes characters
        rejected.append(decomposed)
    for tokenize in (graph.tokenize, graph.tokenize_with_offsets):
        for word in rejected:
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"{MAX_WORD_CHARACTERS:,}"):
                tokenize(["short", f"before {word} after"])
    text, long = "a b ", ("中" * MAX_WORD_CHARACTERS, "中。" * (MAX_WORD_CHARACTERS // 2))
    for number, blank in enumerate("\n\u3000\x85\x1c "):
        text += long[number % 2] + blank
    ids, _, _ = graph.tokenize_with_offsets([text])
    assert graph.tokenize([text]).to_list() == ids.to_list() == [tokenizer.encode(text)]
