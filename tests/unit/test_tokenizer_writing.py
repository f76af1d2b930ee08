"""Tests that a written `tokenizer.json` returns the ids of its source in the tokenizers library."""

import io
import json
import random
import re
import unicodedata

import pytest
import sentencepiece
import tokenizers

from albert_tf.checkpoints.formats.huggingface import sentencepiece_messages as messages
from albert_tf.checkpoints.formats.huggingface import tokenizer_writing as writing
from albert_tf.checkpoints.formats.huggingface.tokenizer import read_tokenizer
from albert_tf.config import AlbertConfig
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, clean_text
from albert_tf.tokenization.word_piece import WordPieceTokenizer
from tests.unusual_texts import SCRIPTS

DECOMPOSED = [unicodedata.normalize("NFD", text) for texts in SCRIPTS.values() for text in texts]
ODD = [
    "",
    "\u200b",
    "  two  blanks ",
    "a\u00a0b\u3000c\u2028d\u2029e\u0085f\u1680g\u200bh\ufeffi",
    "a\x00b\x01c\x0bd\x0ce\x1cf\x1fg\x7fh\ufffdi\u00adj\u200ck\u200dl\u200em\u2060n",
    "\ue000 private \U000f0000 𠀀𠀁 𝔘𝟏 𐍈",
    "½ ¨a ´b \u0345o x\ufe0fy a\u20dd \U0002b820 ǅ",
    "▁king ▁▁ a▁b",
    "<s> (no) - yes. £ €",
]
EVERYTHING = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
TEXTS = [text for texts in SCRIPTS.values() for text in texts] + DECOMPOSED + ODD


def train(lines, is_cased=False, **options) -> SentencePieceTokenizer:
    """Trains a small vocabulary on cleaned lines."""
    model = io.BytesIO()
    settings = {
        "vocab_size": 400,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]", "<s>"],
        "user_defined_symbols": ["(", ")", '"', "-", ".", "£"],
        "minloglevel": 2,
    } | options
    if settings.get("model_type") == "bpe":  # needs an exact size
        settings |= {"vocab_size": options.get("vocab_size", 350), "hard_vocab_limit": True}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([clean_text(line, not is_cased) for line in lines] * 10),
        model_writer=model,
        **settings,
    )
    return SentencePieceTokenizer(model.getvalue(), not is_cased)


def library(tokenizer) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(writing.tokenizer_json(tokenizer)))


def check_same_ids(tokenizer, texts=TEXTS) -> None:
    found = library(tokenizer).encode_batch(texts, add_special_tokens=False)
    for text, encoding in zip(texts, found, strict=True):
        if "<s>" not in text:  # special tokens are recognized
            assert encoding.ids == tokenizer.encode(text), text


def test_pieces_with_digit_and_comma_have_a_penalty(tokenizer):
    scores = dict(writing.tokenizer_json(tokenizer)["model"]["vocab"])
    punished = [piece for piece, score in scores.items() if score < -50]
    assert punished
    assert all(piece[-1] == "," and piece[-2].isdigit() for piece in punished)
    with pytest.raises(ValueError, match=r"^spm\.model "):
        messages.parse_model(b"\xff\xff no model", "spm.model")


@pytest.mark.parametrize("is_cased", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
def test_ids_are_the_same_in_every_script(script, is_cased):
    tokenizer = train(SCRIPTS[script], is_cased)
    check_same_ids(tokenizer)
    own = [tokenizer.encode(text) for text in SCRIPTS[script]]
    assert all(sum(i == tokenizer.unk_id for i in ids) <= 1 for ids in own)


@pytest.mark.parametrize(
    ("lines", "options", "forms"),
    [
        (["The king paid for bread"], {}, ["NFKD"]),
        ([*SCRIPTS["bengali"], *SCRIPTS["tamil"]], {}, ["NFKD"]),
        (["The \u09be king"], {}, ["NFKD"]),
        (SCRIPTS["korean"], {}, ["NFKD", "NFC"]),
        (["The king"], {"byte_fallback": True, "vocab_size": 600}, ["NFKD", "NFC"]),
    ],
)
def test_openvino_supports_one_unicode_form(lines, options, forms):
    tokenizer = train(lines, **options)
    rules = writing.tokenizer_json(tokenizer)["normalizer"]["normalizers"]
    assert [rule["type"] for rule in rules if rule["type"].startswith("NF")] == forms
    parts = (unicodedata.normalize("NFD", character) for character in EVERYTHING[:0x12000])
    every = [f"a {part}b" for part in parts if len(part) > 1]
    check_same_ids(
        tokenizer, [*every[::20], *(text for text in every if "\u0900" < text[2] < "\u1100")]
    )


LINES = [line for script in ("latin", "korean", "hindi", "greek") for line in SCRIPTS[script]]


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe"},
        {"byte_fallback": True, "vocab_size": 600},
        {"model_type": "bpe", "byte_fallback": True, "vocab_size": 600},
        {"add_dummy_prefix": False},
        {"model_type": "bpe", "add_dummy_prefix": False},
        {"split_by_whitespace": False, "max_sentencepiece_length": 30},
        {"remove_extra_whitespaces": False},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nfkc"},
        {"normalization_rule_name": "nmt_nfkc_cf", "is_cased": True},
        {"user_defined_symbols": ["ing", "안녕", "½", "e"]},
        {"byte_fallback": True, "vocab_size": 600, "add_dummy_prefix": False},
    ],
    ids=str,
)
def test_ids_are_the_same_with_options_of_sentencepiece(options):
    check_same_ids(train(LINES, **options))


def without_pieces(tokenizer, kind) -> SentencePieceTokenizer:
    """Marks an ordinary piece as unused."""
    proto = messages.parse_model(tokenizer.model_proto, "model")
    proto.pieces[20].type = kind
    return SentencePieceTokenizer(proto.SerializeToString())


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: train(LINES, model_type="char"), "model type"),
        (lambda: train(LINES, treat_whitespace_as_suffix=True), "treat_whitespace_as_suffix"),
        (lambda: train(LINES, model_type="bpe", user_defined_symbols=["ing"]), "BPE"),
        (lambda: without_pieces(train(LINES), messages.UNUSED), "unused"),
    ],
)
def test_unsupported_models_are_written_without_tokenizer_json(made, named, tmp_path, caplog):
    tokenizer = made()
    with pytest.raises(ValueError, match=named):
        writing.tokenizer_json(tokenizer)
    writing.write_tokenizer(str(tmp_path), tokenizer, AlbertConfig(vocab_size=400))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"spiece.model", "tokenizer_config.json"}
    assert named in caplog.text
    assert "tokenizer.json" in writing.library_ids(str(tmp_path), TEXTS)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_ids_of_wordpiece_are_the_same(do_lower_case):
    characters = sorted({c for text in TEXTS for c in clean_text(text, False).lower() if c.strip()})
    whole = ["king", "οδος", "οδοσ", "学", "istanbul", "the"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *whole]
    tokenizer = WordPieceTokenizer([*tokens, *(f"##{c}" for c in characters)], do_lower_case)
    long = ["a" * length for length in (100, 101, 200, 201)]
    every = [f"a{c}b" for c in EVERYTHING[:0x30000:5] if c.isprintable()]
    check_same_ids(tokenizer, [*TEXTS, *long, *every])


def test_character_classes_are_exact():
    """Also checks that JavaScript accepts the only escapes that are used."""
    for has_property in (
        lambda c: unicodedata.combining(c) > 0,
        str.isspace,
        "[a]^-\\".__contains__,
    ):
        found = writing._characters(has_property)
        assert set(re.findall(r"\\(.)", found)) <= set(r"[]\^-")
        assert re.findall(found, EVERYTHING) == [*filter(has_property, EVERYTHING)]


def test_sigma_is_lower_cased_as_in_python():
    steps = {"type": "Sequence", "normalizers": list(writing._LOWERCASE)}
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({}, ""))
    content = {**json.loads(bare.to_str()), "normalizer": steps}
    normalize = tokenizers.Tokenizer.from_str(json.dumps(content)).normalizer.normalize_str
    choose = random.Random(3)
    texts = ["".join(choose.choices("ΑΣΣσβ.'’·ʰ \u00ad:1-aـ中", k=6)) for _ in range(3000)]
    texts += ["ΟΔΟΣ", "Α...Σ", "ΑΣ ΣΑ"]
    changed = 0
    for text in texts:
        if not re.search(r"[.'’·ʰ\u00ad:ـ]{4}Σ", text):
            assert normalize(text) == text.lower(), text
            changed += "ς" in text.lower()
    assert changed > 100


def test_written_files_are_read_back(tmp_path):
    tokenizer = train(LINES, model_type="bpe")
    writing.write_tokenizer(str(tmp_path), tokenizer, AlbertConfig(vocab_size=400))
    stored = read_tokenizer(str(tmp_path))
    assert stored.do_lower_case is True
    assert not stored.note
    again = tokenizer_from_files(spm_model_file=stored.files[0])
    assert again.tokens == tokenizer.tokens
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
