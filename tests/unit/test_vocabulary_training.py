"""Training a SentencePiece vocabulary."""

import random

import pytest

from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.sentence_piece import train_sentence_piece

SIZE = 50
LETTERS = "abcdÉE"


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    rng = random.Random(5)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(2, 5))) for _ in range(50)]
    return ["  The " + " ".join(rng.choices(words, k=7)) + "  (at 9).\n" for _ in range(300)]


def test_special_symbols_come_first(sentences, tmp_path):
    train_sentence_piece(sentences, tmp_path / "new" / "a", SIZE)
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
    train_sentence_piece(sentences, tmp_path / "a", SIZE, do_lower_case)
    pieces = (tmp_path / "a.vocab").read_text(encoding="utf-8").split("\n")[5:]
    assert any("E" in piece for piece in pieces) == has_capital
    assert not any("É" in piece or "é" in piece for piece in pieces)


def test_training_is_deterministic(sentences, tmp_path):
    for name in ("a", "b"):
        train_sentence_piece(sentences, tmp_path / name, SIZE)
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        (["a few words"], 5000, "`vocab_size`=5000"),
        (["a few words"], 9, "`vocab_size`=9"),
        ([" ", "\n"], SIZE, "`input_file` has no line of text"),
    ],
)
def test_an_impossible_vocabulary_is_rejected_before_writing(tmp_path, text, size, message):
    with pytest.raises(ValueError, match=message):
        train_sentence_piece(text, tmp_path / "a", size)
    assert not list(tmp_path.iterdir())
