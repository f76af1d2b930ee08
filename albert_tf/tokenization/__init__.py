"""Tokenizers: SentencePiece and WordPiece. TensorFlow is only imported for remote paths."""
