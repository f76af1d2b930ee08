"""The Python tokenizer with the methods of `GraphTokenizer`. It only runs eagerly."""

import tensorflow as tf

from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer


class PythonTokens:
    """Reference implementation of `GraphTokenizer`.

    Args:
        tokenizer: the tokenizer in Python.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id

    def tokenize(self, texts):
        ids = self._tokenizer.encode_batch([text.decode() for text in texts.numpy()])
        return _ragged(ids)

    def tokenize_with_offsets(self, texts):
        raw = [text.decode() for text in texts.numpy()]
        found = [self._tokenizer.encode_with_offsets(text) for text in raw]
        starts, ends = (
            [
                [len(text[:place].encode()) for place in getattr(encoding, name)]
                for text, encoding in zip(raw, found, strict=True)
            ]
            for name in ("starts", "ends")
        )
        return _ragged([encoding.ids for encoding in found]), _ragged(starts), _ragged(ends)

    def clean(self, texts):
        if not isinstance(self._tokenizer, SentencePieceTokenizer):
            return texts
        cleaned = [self._tokenizer.clean(text.decode()) for text in texts.numpy()]
        return tf.constant(cleaned, tf.string)


def _ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)
