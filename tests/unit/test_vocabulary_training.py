"""Training a SentencePiece vocabulary."""

import logging
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from absl import logging as absl_logging

from albert_tf.pretraining.vocabulary import train_sentencepiece
from albert_tf.tokenization.loading import tokenizer_from_files

SIZE = 50
LETTERS = "abcdÉE"


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    rng = random.Random(5)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 5))) for _ in range(50)]
    return ["  The " + " ".join(rng.choices(words, k=7)) + "  (at 9).\n" for _ in range(300)]


def train(sentences: Iterable[str], prefix: Path, size: int = SIZE, **options) -> None:
    text = prefix.parent.parent / f"{prefix.parent.name}-{prefix.name}.txt"
    text.write_text("".join(sentences), "utf-8")
    train_sentencepiece(str(text), str(prefix), size, **options)


def test_special_symbols_come_first(sentences, tmp_path):
    train(sentences, tmp_path / "new" / "a")
    tokenizer = tokenizer_from_files(
        spm_model_file=tmp_path / "new" / "a.model", vocab_file=tmp_path / "new" / "a.vocab"
    )
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.tokens[:13] == [*special, "(", ")", '"', "-", ".", "–", "£", "€"]
    assert tokenizer.vocab_size == SIZE
    ids = tokenizer.encode("The  (ÉDE).")
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == "the (ede)."


@pytest.mark.parametrize(("do_lower_case", "has_capital"), [(True, False), (False, True)])
def test_text_is_normalized_as_by_the_tokenizer(sentences, tmp_path, do_lower_case, has_capital):
    train(sentences, tmp_path / "a", do_lower_case=do_lower_case)
    pieces = (tmp_path / "a.vocab").read_text(encoding="utf-8").split("\n")[5:]
    assert any("E" in piece for piece in pieces) == has_capital
    assert not any("É" in piece or "é" in piece for piece in pieces)


def test_training_is_deterministic(sentences, tmp_path):
    for name in ("a", "b"):
        train(sentences, tmp_path / name)
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        (["a few words"], 5000, "`vocab_size`=5000"),
        (["a few words"], 9, "`vocab_size`=9"),
        ([" ", "\n"], SIZE, "There is no text in `input_file`"),
    ],
)
def test_an_impossible_vocabulary_is_rejected_before_writing(tmp_path, text, size, message):
    with pytest.raises(ValueError, match=message):
        train(text, tmp_path / "a", size)
    assert not list(tmp_path.iterdir())


THAI = "ก"  # 3 bytes


@pytest.fixture
def log(caplog, monkeypatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(absl_logging.get_absl_logger(), "propagate", True)
    caplog.set_level(logging.INFO, logger="absl")
    return caplog


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("ab " * 1397, 1),
        ("cd " * 4000, 3),
        (f"{THAI * 1000}。" * 3, 3),
        (THAI * 2000, 2),
        ("a \u2585 b", 1),
    ],
)
def test_no_line_is_ignored(line, number, sentences, tmp_path, log):
    """SentencePiece ignores lines of more than 4,192 bytes, and lines with U+2585."""
    train([f"{line}\n"] * 9 + sentences, tmp_path / "a")
    assert f"lines={9 * number + 300} lines_cut={9 * (number > 1)} lines_left_out=0" in log.text
    pieces = (tmp_path / "a.vocab").read_text("utf-8")
    assert (THAI in pieces) == (THAI in line)


def test_settings_of_sentencepiece(sentences, tmp_path, log):
    text = [sentence.replace("\n", " 語字éÉ\n") for sentence in sentences]
    train([*text, "語" * 9], tmp_path / "a", 300, keep_accents=True, byte_fallback=True,
          user_defined_symbols=["ab", "É", ","], do_lower_case=False, character_coverage=0.99,
          input_sentence_size=250)  # fmt: skip
    assert "lines=301 lines_cut=0 lines_left_out=51 unknown_pieces=0.00%" in log.text
    tokenizer = tokenizer_from_files(
        spm_model_file=tmp_path / "a.model", do_lower_case=False, keep_accents=True
    )
    assert tokenizer.tokens[5:8] == ["ab", "É", ","]
    assert "<0xE8>" in tokenizer.tokens
    assert tokenizer.decode(tokenizer.encode("é字 ä")) == "é字 ä"


@pytest.mark.parametrize("symbols", [["É"], ["a b"], [""], ["Ab"]])
def test_symbols_that_normalization_changes_are_rejected(symbols, tmp_path):
    with pytest.raises(ValueError, match=f"`user_defined_symbols`.*{symbols[0]!r}"):
        train(["a b"], tmp_path / "a", user_defined_symbols=symbols)
    with pytest.raises(TypeError, match="`user_defined_symbols` must be a list"):
        train(["a b"], tmp_path / "a", user_defined_symbols="ab")


def test_lost_characters_and_unknown_pieces_are_reported(sentences, tmp_path, log):
    rare = [f"{letter} e\n" for letter in "fghijklmnop"] * 20
    train([*sentences, *rare], tmp_path / "a", character_coverage=0.98)
    assert "changed_characters=0.00%" not in log.text
    assert "Pass `keep_accents`" in log.text
    assert "larger `character_coverage`" in log.text
    log.clear()
    train(sentences, tmp_path / "b", keep_accents=True)
    assert "unknown_pieces=0.00%" in log.text
    assert "changed_characters=0.00%" in log.text
    assert all(record.levelno == logging.INFO for record in log.records)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("abc …ﬁ½，", 0),
        ("한국어", 0),
        ("schön", 1),
        ("क्या", 1),
        ("が", 1),
        ("か\u3099", 1),
        ("má mà", 2),
    ],
)
def test_characters_that_lose_their_marks_are_counted(text, number, tokenizer):
    assert tokenizer.count_changed(text) == number
    kept = type(tokenizer)(tokenizer.model_proto, keep_accents=True)
    assert kept.count_changed(text) == 0
