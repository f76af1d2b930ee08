"""Tokenizers: SentencePiece and WordPiece. TensorFlow is only imported for remote paths."""

from albert_tf.tokenization.base import Encoding, Tokenizer
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer, sentencepiece_starts_word
from albert_tf.tokenization.word_piece import WordPieceTokenizer, wordpiece_starts_word

__all__ = [
    "Encoding",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "load_tokenizer",
    "sentencepiece_starts_word",
    "wordpiece_starts_word",
]
