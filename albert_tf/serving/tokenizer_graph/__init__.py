"""A tokenizer as a part of a graph: strings in, the ids of our Python tokenizers out."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.serving.tokenizer_graph.characters import Located
from albert_tf.serving.tokenizer_graph.sentence_piece import SentencePieceGraph
from albert_tf.serving.tokenizer_graph.word_piece import WordPieceGraph
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer
from albert_tf.tokenization.word_piece import WordPieceTokenizer

_TEXTS = [tf.TensorSpec([None], tf.string, name="texts")]
Offsets = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class GraphTokenizer(tf.Module):
    """Turns text into vocabulary ids with operations of TensorFlow and tensorflow-text alone.

    Ids and positions equal those of the Python tokenizer it is made from, for every text that
    Python can hold. Bytes that are not UTF-8 count as U+FFFD. A word of more than 50,000 characters
    without white space raises `tf.errors.InvalidArgumentError`; SentencePiece graphs also count
    characters after decomposition. It is saved with whatever holds it, the vocabulary included, and
    works inside `tf.data`. Whoever loads what was saved has to `import tensorflow_text` first.

    Attributes:
        cls_id, sep_id, pad_id, mask_id: ids of the special tokens.
        vocab_size: number of tokens, V.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes over a SentencePiece or WordPiece tokenizer; raises ValueError for any other."""
        super().__init__()
        self._graph: SentencePieceGraph | WordPieceGraph
        if isinstance(tokenizer, SentencePieceTokenizer):
            self._graph = SentencePieceGraph(tokenizer)
        elif isinstance(tokenizer, WordPieceTokenizer):
            self._graph = WordPieceGraph(tokenizer)
        else:
            raise UserError(
                "Only SentencePiece and WordPiece tokenizers can become part of a graph, not "
                f"{type(tokenizer).__name__}."
            )
        self.cls_id = tokenizer.cls_id
        self.sep_id = tokenizer.sep_id
        self.pad_id = tokenizer.pad_id
        self.mask_id = tokenizer.mask_id
        self.vocab_size = tokenizer.vocab_size

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Gives raw texts, string [B], as a SentencePiece vocabulary sees them; others as they are.

        What is cleaned for WordPiece is cleaned while it is split into words.
        """
        return self._graph.clean(texts) if isinstance(self._graph, SentencePieceGraph) else texts

    @tf.function(input_signature=_TEXTS, autograph=False)
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Gives ids, int32 [B, (tokens)], of UTF-8 texts, string [B], without special tokens."""
        return self._graph.tokenize(texts)

    @tf.function(input_signature=_TEXTS, autograph=False)
    def tokenize_with_offsets(self, texts: tf.Tensor) -> Offsets:
        """Gives the ids of UTF-8 texts, string [B], and the bytes that each of them comes from.

        The ranges are those of `Encoding`, counted in bytes of the UTF-8 of the raw text: piece i
        was made from `text[starts[i]:ends[i]]` of the bytes.

        Returns:
            ids, starts and ends, int32 [B, (tokens)] each.
        """
        located: Located = self._graph.tokenize_with_offsets(texts)
        splits = tf.cast(located.splits, tf.int64)
        rows = (located.ids, located.starts, located.ends)
        ids, starts, ends = (
            tf.RaggedTensor.from_row_splits(row, splits, validate=False) for row in rows
        )
        return ids, starts, ends
