"""Tokenizers as TensorFlow graphs that return the ids of the Python tokenizers."""

import tensorflow as tf

from albert_tf.serving.tokenizer_graph.characters import ragged
from albert_tf.serving.tokenizer_graph.sentence_piece import SentencePieceGraph
from albert_tf.serving.tokenizer_graph.word_piece import WordPieceGraph
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import require_own_rules
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer
from albert_tf.tokenization.word_piece import WordPieceTokenizer

_TEXTS = [tf.TensorSpec([None], tf.string, name="texts")]
Offsets = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class GraphTokenizer(tf.Module):
    """Maps texts to ids with operations of TensorFlow and tensorflow-text.

    Ids and ranges equal the Python results, with ranges in bytes. Invalid UTF-8 is read as U+FFFD.
    More than 50,000 characters without white space raise `tf.errors.InvalidArgumentError`. In
    SentencePiece graphs without `keep_accents`, the limit also applies to normalized texts.
    Programs that load a SavedModel with this tokenizer must import tensorflow_text first.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        require_own_rules(tokenizer, "A model that takes texts")
        self._graph: SentencePieceGraph | WordPieceGraph
        if isinstance(tokenizer, SentencePieceTokenizer):
            self._graph = SentencePieceGraph(tokenizer)
        else:
            assert isinstance(tokenizer, WordPieceTokenizer)
            self._graph = WordPieceGraph(tokenizer)
        self.cls_id = tokenizer.cls_id
        self.sep_id = tokenizer.sep_id
        self.pad_id = tokenizer.pad_id
        self.mask_id = tokenizer.mask_id
        self.vocab_size = tokenizer.vocab_size

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes texts, string [B], for SentencePiece; unchanged for WordPiece."""
        return self._graph.clean(texts) if isinstance(self._graph, SentencePieceGraph) else texts

    @tf.function(input_signature=_TEXTS, autograph=False)
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts, string [B], without special tokens, int32 [B, (tokens)]."""
        return self._graph.tokenize(texts)

    @tf.function(input_signature=_TEXTS, autograph=False)
    def tokenize_with_offsets(self, texts: tf.Tensor) -> Offsets:
        """Returns ids, starts and ends of the tokens of texts, int32 [B, (tokens)] each.

        The ranges are defined in `Encoding`, but count bytes of the raw text in UTF-8.
        """
        ids, splits, starts, ends = self._graph.tokenize_with_offsets(texts)
        return ragged(ids, splits), ragged(starts, splits), ragged(ends, splits)
