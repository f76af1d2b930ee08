"""Tokenizers: offsets, formats of files, errors and pickling."""

import contextlib
import pickle
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.finetuning.texts import TextExample, text_sequences
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.piece_counts import PieceCounts, counting, warn_of_unreachable_pieces
from albert_tf.tokenization.sentence_piece import (
    SentencePieceTokenizer,
    align_clean_text,
    clean_text,
)
from albert_tf.tokenization.word_piece import WordPieceTokenizer, align_words, split_words
from tests.huggingface import accents

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "light", "##house", "##s", "l", "cafe", "9", ",", "中", "国", "straße", "##ς", "σ"]

# Characters whose normalized form is one character.
PLAIN = [*"the lighthouse was 9, 84, 1,205, (and) far; Émile's ñandú", *"中ÄＱ９"]
# Characters that normalization removes, expands, reorders or changes depending on their neighbors.
ODD = [
    *"½ﬁ㌔⒈🄊İΣςß",
    *"\t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000",
    *"\x00\x01\x7f\xad\u200b\u200e\ufeff\ufffd",
    *"\u0301\u0323\u0344\u093f\u302e\u0e33\U0001d165\U0001d16e",
    *"각한ｶﾞ豈≠;`´¨，。—",
]


@pytest.fixture(scope="module")
def model_file(golden: Path) -> Path:
    return golden / "tokenizer" / "small_1000.model"


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece", "keep_accents", "bytes"])
def tokenizer(request, golden: Path, byte_file: str) -> Tokenizer:
    file = "vocab.txt" if request.param == "wordpiece" else "small_1000.model"
    keep_accents = request.param in ("keep_accents", "bytes")
    return tokenizer_from_files(
        vocab_file=byte_file if request.param == "bytes" else golden / "tokenizer" / file,
        keep_accents=keep_accents,
    )


@pytest.fixture(scope="module")
def byte_file(tmp_path_factory) -> str:
    """Returns the path of a model with byte fallback."""
    return accents.write_model(tmp_path_factory.mktemp("bytes") / "bytes.model", has_bytes=True)


@pytest.fixture(scope="module")
def spm(model_file: Path) -> Tokenizer:
    return tokenizer_from_files(spm_model_file=model_file)


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return WordPieceTokenizer(SPECIAL + WORDS)


def random_texts(characters: list[str], seed: int, number: int = 700) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(characters, k=draw.randint(0, 40))) for _ in range(number)]


def slices(tokenizer: Tokenizer, text: str) -> list[tuple[str, str]]:
    encoding = tokenizer.encode_with_offsets(text)
    pieces = tokenizer.tokenize(text)
    return [
        (piece, text[start:end])
        for piece, start, end in zip(pieces, encoding.starts, encoding.ends, strict=True)
    ]


# Clean-up and splitting


@pytest.mark.parametrize("lower", [True, False])
def test_alignment_does_not_change_the_text(lower):
    for text in random_texts(PLAIN + ODD * 2, seed=3, number=1400):
        for keep_accents in (True, False):
            clean, ranges = align_clean_text(text, lower, keep_accents)
            assert clean == clean_text(text, lower, keep_accents=keep_accents)
            assert len(text if ranges is None else ranges) == len(clean)
        assert len(text if ranges is None else ranges) == len(clean)
        words = align_words(text, lower)
        assert [word.text for word in words] == split_words(text, lower)
        assert all(len(word.text) == len(word.positions) for word in words)


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece_stretches_equal_the_whole_text(lower):
    tokenizer = WordPieceTokenizer([*SPECIAL, *"abc.中", "##a"], lower)
    for text in random_texts([*PLAIN, *ODD, *"。，中 .a"], seed=17):
        encoding = tokenizer.encode_with_offsets(text)
        found = zip(encoding.ids, encoding.starts, encoding.ends, strict=True)
        assert list(found) == tokenizer._locate_pieces(text)


# Offsets


HALF = [("1", "½"), ("⁄", "½"), ("2", "½")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The lighthouse", [("▁the", "The"), ("▁lighthouse", " lighthouse")]),
        ("  the\n\n  was ", [("▁the", "  the"), ("▁was", "  was")]),
        ("th\u0301e\u0301 (", [("▁the", "th\u0301e"), ("▁", " "), ("(", "(")]),
        (" (", [("▁", " "), ("(", "(")]),
        ("½", [("▁", ""), *HALF]),
        ("the\u200e\u200e was", [("▁the", "the"), ("▁was", " was")]),
        ("(the9,", [("▁", ""), ("(", "("), ("the", "the"), ("▁", ""), ("9", "9"), (",", ",")]),
        ("ＴＨＥ\u3000ＷＡＳ", [("▁the", "ＴＨＥ"), ("▁was", "\u3000ＷＡＳ")]),
        ("", []),
    ],
)
def test_sentencepiece_offsets(spm, text, expected):
    assert slices(spm, text) == expected


def test_offsets_from_lengths_equal_offsets_from_sentencepiece(model_file, monkeypatch):
    texts = random_texts([*PLAIN, *PLAIN, *"9,9, "], seed=19)
    tokenizer = SentencePieceTokenizer(model_file.read_bytes())
    by_lengths = [tokenizer.encode_with_offsets(text) for text in texts]
    # No text equals its pieces, so all offsets come from SentencePiece.
    monkeypatch.setattr(tokenizer, "_texts", [""] * tokenizer.vocab_size)
    assert by_lengths == [tokenizer.encode_with_offsets(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The lighthouses",
            [("the", "The"), ("light", "light"), ("##house", "house"), ("##s", "s")],
        ),
        ("中国，9", [("中", "中"), ("国", "国"), ("[UNK]", "，"), ("9", "9")]),
        ("a l\u0301 unheard", [("[UNK]", "a"), ("l", "l"), ("[UNK]", "unheard")]),
        ("Ca\u00ad\x01fé ,", [("cafe", "Ca\u00ad\x01fé"), (",", ",")]),
        ("l" * 200 + " " + "l" * 201, [("[UNK]", "l" * 200), ("[UNK]", "l" * 201)]),
        ("lΣ Σ", [("l", "l"), ("##ς", "Σ"), ("σ", "Σ")]),
    ],
)
def test_wordpiece_offsets(wordpiece, text, expected):
    assert slices(wordpiece, text) == expected
    tokenizer = WordPieceTokenizer([*SPECIAL, "s", "##s"])
    assert tokenizer.encode("s" * 200) == [5] + [6] * 199


def test_offsets_of_unusual_texts(tokenizer):
    for text in random_texts(PLAIN + ODD * 2, seed=11):
        ids, starts, ends = tokenizer.encode_with_offsets(text)
        assert ids == tokenizer.encode(text)
        assert all(0 <= start <= end <= len(text) for start, end in zip(starts, ends, strict=True))
        assert starts == sorted(starts)
        covered_ends = [end for start, end in zip(starts, ends, strict=True) if start < end]
        assert covered_ends == sorted(covered_ends)


def test_offsets_with_accents_and_bytes(model_file, byte_file):
    """Every byte of an unknown character covers the character."""
    tokenizer = SentencePieceTokenizer(model_file.read_bytes(), keep_accents=True)
    assert slices(tokenizer, "½") == [("▁", ""), *HALF]
    assert slices(tokenizer, "the ½") == [("▁the", "the"), ("▁", " "), *HALF]
    tokenizer = tokenizer_from_files(spm_model_file=byte_file, keep_accents=True)
    pieces = [(f"<0x{byte:02X}>", "龘") for byte in "龘".encode()]
    assert slices(tokenizer, "má 龘") == [("▁má", "má"), ("▁", " "), *pieces]
    ids = tokenizer.encode(text := "má 龘 😀x")
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids[:-2]) == "má 龘 \ufffd"


# Accents and bytes


@pytest.mark.parametrize("name", accents.recorded()["ids"])
def test_accents_are_kept_as_in_transformers(name, tmp_path):
    language, lower = name.split()
    tokenizer = tokenizer_from_files(
        spm_model_file=accents.write_model(tmp_path / "spiece.model"),
        do_lower_case=lower == "True",
        keep_accents=True,
    )
    ids = tokenizer.encode_batch(accents.lines(language))
    expected = accents.recorded()["ids"][name]
    assert ids[0] == expected["first"]
    assert accents.digest(ids) == expected["digest"]


def test_accents_of_word_pieces_are_not_a_setting(golden):
    with pytest.raises(ValueError, match=r"needs a SentencePiece model.*`do_lower_case`=False"):
        tokenizer_from_files(vocab_file=golden / "tokenizer" / "vocab.txt", keep_accents=True)


# Encoding and decoding


def test_tokens_and_ids(tokenizer):
    texts = ["", "the 9, was", " ", *random_texts(PLAIN + ODD, seed=13, number=90)]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(tuple(texts[:5])) == tokenizer.encode_batch(texts)[:5]
    assert tokenizer.encode_batch([]) == tokenizer.encode("") == []
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[MASK]", "no such token"])
    assert ids == [tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.unk_id]
    assert tokenizer.convert_ids_to_tokens(ids[:3]) == ["[CLS]", "[SEP]", "[MASK]"]
    for name in ("mask", "cls", "sep", "pad", "unk"):
        token, i = getattr(tokenizer, f"{name}_token"), getattr(tokenizer, f"{name}_id")
        assert tokenizer.convert_tokens_to_ids([token]) == [i]
    assert tokenizer.vocab_size == len(tokenizer) == len(tokenizer.tokens)
    assert (len(tokenizer.starts_word), tokenizer.starts_word.dtype) == (len(tokenizer), np.bool_)
    for wrong in (-1, len(tokenizer)):
        with pytest.raises(IndexError, match=f"not {wrong}"):
            tokenizer.convert_ids_to_tokens([7, wrong])


def test_decoding_and_lone_surrogates(spm, wordpiece):
    ids = [spm.cls_id, *spm.encode("The lighthouse was"), spm.mask_id, spm.sep_id, spm.pad_id]
    assert spm.decode(ids) == "the lighthouse was[MASK]"
    ids = [wordpiece.cls_id, *wordpiece.encode("the lighthouses ,"), wordpiece.sep_id]
    assert wordpiece.decode(ids) == "the lighthouses ,"
    batch = partial(spm.encode_batch, ["the"] * 20 + [text := "the \udc00 was"])
    encoders = (spm.tokenize, spm.encode, spm.encode_with_offsets)
    for encode in (*(partial(encode, text) for encode in encoders), batch):
        with pytest.raises(ValueError, match=r"'the \\udc00 was'"):
            encode()


# Files


def wordpiece_file(folder: Path, tokens: list[str], name: str = "vocab.txt") -> Path:
    path = folder / name
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


@pytest.mark.parametrize("flag", ["spm_model_file", "vocab_file"])
def test_the_content_determines_the_format(golden, tmp_path, flag):
    folder = golden / "tokenizer"
    files = [str(folder / "small_1000.model"), str(folder / "small_1000.vocab")]
    for given in files:
        tokenizer = tokenizer_from_files(**{flag: given})
        assert isinstance(tokenizer, SentencePieceTokenizer)
        assert tokenizer.files == files
    two_columns = wordpiece_file(tmp_path, [f"{token}\t0.5" for token in SPECIAL + WORDS])
    tokenizer = tokenizer_from_files(**{flag: two_columns}, do_lower_case=False)
    assert isinstance(tokenizer, WordPieceTokenizer)
    assert tokenizer.tokens == SPECIAL + WORDS
    assert (tokenizer.files, tokenizer.do_lower_case) == ([str(two_columns)], False)


def test_a_list_of_pieces_needs_its_model(model_file, tmp_path):
    lone = tmp_path / "lone.vocab"
    lone.write_bytes(model_file.with_suffix(".vocab").read_bytes())
    with pytest.raises(ValueError, match=r"lone\.vocab .*lone\.model.*`spm_model_file`"):
        tokenizer_from_files(vocab_file=lone)
    tokenizer = tokenizer_from_files(spm_model_file=model_file, vocab_file=lone)
    assert tokenizer.files == [str(model_file), str(lone)]
    alone = tmp_path / "alone.model"
    alone.write_bytes(model_file.read_bytes())
    assert tokenizer_from_files(spm_model_file=alone).files == [str(alone)]


def test_two_files_must_agree(model_file, tmp_path):
    vocab = wordpiece_file(tmp_path, SPECIAL + WORDS)
    shorter = wordpiece_file(tmp_path, SPECIAL + WORDS[:-1], "shorter.txt")
    for first, second in ((model_file, vocab), (vocab, shorter)):
        with pytest.raises(ValueError, match="different vocabularies"):
            tokenizer_from_files(spm_model_file=first, vocab_file=second)
    again = wordpiece_file(tmp_path, SPECIAL + WORDS, "again.txt")
    assert tokenizer_from_files(spm_model_file=vocab, vocab_file=again).tokens == SPECIAL + WORDS
    both = tokenizer_from_files(spm_model_file=model_file, vocab_file=model_file)
    assert both.files[0] == str(model_file)


def test_files_without_a_vocabulary_are_rejected(model_file, tmp_path):
    path, model = tmp_path / "vocab.bin", model_file.read_bytes()
    for content, message in (
        (b" \n\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is neither a SentencePiece model nor"),
        ("中国\n".encode("gbk"), "is neither a SentencePiece model nor"),
        (model[:50_000], "is neither a SentencePiece model nor"),
        (model.replace("▁the".encode(), b"\xff" * 6, 1), "is neither a SentencePiece model nor"),
        (b"version https://git-lfs\n", "has no <pad> or .PAD. among its 1 tokens"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"vocab.bin {message}"):
            tokenizer_from_files(vocab_file=path)


def test_special_tokens_are_required(tmp_path, caplog):
    for missing in SPECIAL:
        path = wordpiece_file(tmp_path, [token for token in SPECIAL + WORDS if token != missing])
        with pytest.raises(ValueError, match=rf"vocab\.txt has no .*\{missing[:-1]}\]"):
            tokenizer_from_files(vocab_file=path)
    path = wordpiece_file(tmp_path, [*SPECIAL, "the", "the", "light"])
    assert tokenizer_from_files(vocab_file=path).convert_tokens_to_ids(["light"]) == [6]
    assert "8 lines and 7 tokens" in caplog.text


def test_remote_paths_and_pickling(tokenizer, tmp_path):
    """Worker processes get pickled tokenizers."""
    path = f"ram://{tmp_path.name}/remote.model"
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(Path(tokenizer.files[0]).read_bytes())
    for lower in (True, False):
        remote = tokenizer_from_files(vocab_file=path, do_lower_case=lower)
        local = tokenizer_from_files(vocab_file=tokenizer.files[0], do_lower_case=lower)
        copy, text = pickle.loads(pickle.dumps(remote)), "the 9, lighthouses Émile"
        assert copy.encode_with_offsets(text) == local.encode_with_offsets(text)
        assert (copy.files, copy.tokens) == (remote.files, local.tokens)
        assert copy.do_lower_case == lower


class TestCall:
    TEXTS = ("The lighthouse, in 1,205: Émile's ñandú", "", "far far away it was", "中国 light")
    SECONDS = ("was it far?", "the light", "", "9, 84 and the lighthouse")

    def test_batches_equal_features_of_the_classifier(self, tokenizer):
        for seconds in (None, self.SECONDS):
            pairs = zip(self.TEXTS, seconds or [None] * len(self.TEXTS), strict=True)
            examples = [TextExample("", *pair) for pair in pairs]
            for length in (5, 9, 12, 40):
                expected = text_sequences(examples, tokenizer, length)
                rows = np.arange(len(self.TEXTS))
                for padding, size in (("longest", expected.lengths.max()), ("max_length", length)):
                    batch = tokenizer(self.TEXTS, seconds, max_length=length, padding=padding)
                    assert list(batch) == ["input_ids", "input_mask", "segment_ids"]
                    for name, values in expected.padded(rows, size).items():
                        assert batch[name].dtype == np.int32
                        np.testing.assert_array_equal(batch[name], values)

    @pytest.mark.parametrize("length", [None, 9])
    def test_offsets(self, tokenizer, length):
        batch = tokenizer(self.TEXTS, self.SECONDS, max_length=length, offsets=True)
        plain = tokenizer(self.TEXTS, self.SECONDS, max_length=length)
        for row, texts in enumerate(zip(self.TEXTS, self.SECONDS, strict=True)):
            for segment, text in enumerate(texts):
                _, starts, ends = tokenizer.encode_with_offsets(text)
                special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]
                is_text = ~np.isin(batch["input_ids"][row], special)
                inside = (batch["segment_ids"][row] == segment) & is_text
                found = batch["offsets"][row][inside].tolist()
                whole = list(map(list, zip(starts, ends, strict=True)))
                assert found == whole[: len(found)]
                assert length is not None or len(found) == len(whole)
                assert not batch["offsets"][row][~is_text].any()
        for name, values in plain.items():
            np.testing.assert_array_equal(batch[name], values)

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            (({"text": "a"},), TypeError, "texts must be a list of texts"),
            ((["a", None],), TypeError, r"texts\[1\] is None"),
            ((["a"], ["b", "c"]), ValueError, "text_pairs .* 1.* Received: 2"),
            ((["a"], ["b"], 4), ValueError, "`max_length` must be at least 5 for pairs"),
            ((["a"], None, 9, "max"), ValueError, "padding must be .*'max'"),
        ],
    )
    def test_invalid_arguments(self, tokenizer, arguments, error, message):
        with pytest.raises(error, match=message):
            tokenizer(*arguments)

    def test_single_texts_and_truncation(self, tokenizer):
        one = tokenizer("the house", "a river", padding=True, truncation=True, max_length=9)
        for name, values in tokenizer(["the house"], ["a river"], max_length=9).items():
            np.testing.assert_array_equal(one[name], values)
        length = tokenizer("the house").popitem()[1].shape[1]
        tokenizer("the house", max_length=length, truncation=False)
        with pytest.raises(ValueError, match=f"max_length={length - 1}"):
            tokenizer(["a", "the house"], max_length=length - 1, truncation=False)
        text = "far light " * 300
        (ids,) = tokenizer([text])["input_ids"]
        assert ids.tolist() == [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]

    def test_padding_has_the_id_of_the_padding_token(self):
        batch = WordPieceTokenizer(["a", *SPECIAL[1:], "[PAD]"])(["a", "a a a"])
        assert batch["input_ids"].tolist() == [[2, 0, 3, 5, 5], [2, 0, 0, 0, 3]]
        assert batch["input_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]

    def test_special_tokens_and_decoding(self, tokenizer):
        ids = tokenizer("the [MASK].", split_special_tokens=False)["input_ids"][0]
        assert list(ids).count(tokenizer.mask_id) == 1
        assert tokenizer.mask_id not in tokenizer("the [MASK].")["input_ids"]
        plain = tokenizer("the house", split_special_tokens=False)["input_ids"]
        np.testing.assert_array_equal(plain, tokenizer("the house")["input_ids"])
        ids = tokenizer(["the house", "a"])["input_ids"]
        assert tokenizer.decode(ids) == [tokenizer.decode(row.tolist()) for row in ids]
        assert tokenizer.decode(tf.constant(ids[0])) == tokenizer.decode(ids[0])
        assert tokenizer.cls_token not in tokenizer.decode(ids[0])
        assert tokenizer.decode(ids[0], skip_special_tokens=False).startswith(tokenizer.cls_token)


@pytest.mark.parametrize(
    ("texts", "described"),
    [
        (["the light", "", "lighthouses"], "unknown_pieces=0.00% pieces_per_word=1.67"),
        (["the [UNK] <unk> \U0001f600"], "unknown_pieces=87.50% pieces_per_word=2.00"),
        # Every character of a script without blanks is a word, but not hangul.
        (["中国", "中中国 the"], "unknown_pieces=0.00% pieces_per_word=1.00"),
        (["นา", "서울 중"], "unknown_pieces=100.00% pieces_per_word=0.75"),
        ([], "unknown_pieces=0.00% pieces_per_word=0.00"),
    ],
)
def test_pieces_and_words_are_counted(wordpiece, texts, described):
    counts = counts_of(wordpiece, texts)
    assert counts.describe() == described
    assert counts["pieces"] == sum(map(len, wordpiece.encode_batch(texts)))


def counts_of(tokenizer: Tokenizer, texts: list[str]) -> PieceCounts:
    counts = PieceCounts()
    counts.add(tokenizer, texts, tokenizer.encode_batch(texts))
    return counts


def test_the_most_frequent_unknown_characters_are_named(spm, wordpiece):
    texts = ["the \U0001f600 road 서서서서", "a bridge 서 \u200d"]
    warning = counts_of(spm, texts).warning("pieces.model")
    assert "are unknown to the vocabulary pieces.model, most often '서', '\U0001f600'" in warning
    warning = counts_of(wordpiece, ["the ll"]).warning("")  # without "##l"
    assert warning.startswith("1 of 2 pieces (50.0%) are unknown")
    assert "most often 'll'" in warning


def test_a_tokenizer_warns_once_and_counts_each_source(model_file, caplog):
    spm = tokenizer_from_files(spm_model_file=model_file)
    for text in ("the road was long", *["서 road"] * 3):
        with counting(spm) as counts:
            counts.add(spm, [text], [spm.encode(text)])
    assert [text.split(" unknown")[0] for text in caplog.messages] == ["1 of 13 pieces (7.7%) are"]
    caplog.clear()
    with caplog.at_level("DEBUG", logger="absl"):
        for source in ("a.txt", "b.txt"):
            with counting(spm, source) as counts:
                counts.add(spm, ["서 road"], [spm.encode("서 road")])
    info, warning, *others = caplog.messages
    assert info == "a.txt: pieces=4 unknown_pieces=25.00% pieces_per_word=2.00"
    assert warning.startswith("a.txt: 1 of 4 pieces (25.0%) are unknown")
    assert [text[:6] for text in others] == ["b.txt:"] * 2
    assert counts["pieces"] == 4
    with contextlib.suppress(OSError), counting(spm, "c.txt"):
        raise OSError
    assert "c.txt" not in caplog.text
    caplog.clear()
    spm = tokenizer_from_files(spm_model_file=model_file)
    for source in ("a.txt", None):  # a warning that names the source replaces the general one
        with counting(spm, source) as counts:
            counts.add(spm, ["서 road"], [spm.encode("서 road")])
    (warning,) = caplog.messages
    assert warning.startswith("a.txt: 1 of 4 pieces")


def test_unreachable_capitals_are_reported(model_file, wordpiece, caplog):
    warn_of_unreachable_pieces(wordpiece)
    warn_of_unreachable_pieces(tokenizer_from_files(vocab_file=model_file, do_lower_case=False))
    assert not caplog.messages
    warn_of_unreachable_pieces(tokenizer_from_files(vocab_file=model_file))
    assert "83 of 1000 pieces, such as '▁The', are never used" in caplog.text
