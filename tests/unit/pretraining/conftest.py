"""The recorded corpus, and a WordPiece tokenizer for it."""

from pathlib import Path

import pytest

from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files


@pytest.fixture(scope="session")
def word_pieces(golden: Path) -> Tokenizer:
    return tokenizer_from_files(vocab_file=str(golden / "tokenizer" / "vocab.txt"))


@pytest.fixture(scope="session")
def corpus(golden: Path) -> str:
    """Returns the path of a text file of 60 documents."""
    return str(golden / "pretraining_data" / "corpus.txt")
