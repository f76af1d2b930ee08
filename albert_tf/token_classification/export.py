"""SavedModels of token classifiers that take token ids or texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.signatures import DEFAULT_SIGNATURE, TOKENS_SIGNATURE
from albert_tf.checkpoints.stored_task import LABELS_FILE, TOKENS, StoredTask
from albert_tf.data.errors import UserError
from albert_tf.data.sequences import check_room
from albert_tf.labels import Labels
from albert_tf.modeling.heads import class_outputs
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.serving.saved_model import (
    Outputs,
    Sequences,
    check_labels,
    float32_copy,
    joined,
    labels_json,
    tokens_function,
    write_saved_model,
    write_text_model,
)
from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.serving.tokenizer_graph.characters import (
    Characters,
    CodeMap,
    constant,
    decode,
    possible_codes,
)
from albert_tf.token_classification.data import (
    BLANK,
    DEFAULT_READING,
    DROPPED,
    PART,
    SINGLE,
    Reading,
    character_class,
)
from albert_tf.token_classification.features import SPECIAL_TOKENS
from albert_tf.token_classification.labels import PLAIN, scheme_of, split_label
from albert_tf.tokenization.base import Tokenizer

_TOKENS_AT_ONCE = 8192  # limits memory, because long texts have many windows


def export_token_classifier(
    model: AlbertForTokenClassification, labels: Labels, export_dir: str
) -> str:
    """Writes a SavedModel for token ids to a new subdirectory of `export_dir`.

    The model computes in float32. The signatures `tokens` and `serving_default` are equal. They
    take `input_ids`, `input_mask` (1 = real token, 0 = padding) and `segment_ids`, int32 [B, S]
    each, and return `probabilities`, float32 [B, S, K], `predictions`, int32 [B, S], and
    `predicted_labels`, string [B, S]. The label of a word is predicted at its first piece; ignore
    the outputs at other positions.

    Returns:
        Path of the subdirectory, which is named after the time in seconds.

    Raises:
        ValueError: the labels do not match the model.
    """
    check_labels(model, labels)
    copy = float32_copy(model)
    names = labels.names

    def outputs(inputs: Outputs) -> Outputs:
        found = class_outputs(copy(inputs, training=False)["logits"])
        return {**found, "predicted_labels": tf.gather(tf.constant(names), found["predictions"])}

    function = tokens_function(outputs)
    signatures = {DEFAULT_SIGNATURE: function, TOKENS_SIGNATURE: function}
    return write_saved_model(copy, signatures, export_dir, _label_files(labels))


def _label_files(labels: Labels) -> dict[str, str]:
    """Returns the contents of the files with the label names and with the task, by file name."""
    task = json.dumps(StoredTask(TOKENS, labels, False).to_dict())
    return {LABELS_FILE: labels_json(labels), f"task/{LABELS_FILE}": task}


def export_text_token_classifier(
    model: AlbertForTokenClassification,
    labels: Labels,
    tokenizer: Tokenizer,
    export_dir: str,
    max_seq_length: int,
    reading: Reading = DEFAULT_READING,
) -> str:
    """Writes a SavedModel for texts to a new subdirectory of `export_dir`/text.

    The model predicts like `TokenClassifier`, and needs the operations of TensorFlow Text. Its
    signature `serving_default` takes `texts`, UTF-8 string [B]. docs/exporting.md lists the
    outputs. For `reading` see `WordTagger`.

    Returns:
        Path of the subdirectory.

    Raises:
        ValueError: the labels or `max_seq_length` do not match the model, or the words are those
            of ICU, which TensorFlow does not have.
    """
    check_word_unit(reading.word_unit)
    check_labels(model, labels)
    check_room(False, max_seq_length)
    model.config.check_sequence_length(max_seq_length)
    copy = float32_copy(model)
    graph_tokenizer = GraphTokenizer(tokenizer)
    tagger = GraphTagger(
        graph_tokenizer,
        tokenizer.unk_id,
        lambda inputs: copy(inputs, training=False)["logits"],
        labels,
        max_seq_length,
        reading,
    )
    graph_tokenizer.of_words = tagger  # saves the tagger's tables with the tokenizer
    return write_text_model(
        copy, graph_tokenizer, tagger, {"texts": 1}, export_dir, _label_files(labels)
    )


def check_word_unit(word_unit: str) -> None:
    """Raises ValueError if TensorFlow cannot find the words of a unit."""
    if word_unit == "icu":
        raise UserError(
            "A model for texts cannot find the words of ICU. Received: `word_unit`='icu'. Export a "
            "model for token ids, or train with `word_unit`='character'."
        )


class GraphWords(NamedTuple):
    """W words or entities of B texts."""

    characters: Characters  # characters of the texts
    splits: tf.Tensor  # int64 [B + 1]; index of the first word of each text, and W
    firsts: tf.Tensor  # int32 [W]; index of the first character of each word
    lasts: tf.Tensor  # int32 [W]; index of the last character of each word

    @classmethod
    def find(cls, characters: Characters, classes: tf.Tensor) -> GraphWords:
        """Splits texts like `split_words`, given the classes of the characters, int32 [N]."""
        places = tf.cast(tf.where(classes != ord(DROPPED))[:, 0], tf.int32)
        kept, rows = tf.gather(classes, places), tf.gather(characters.rows, places)
        is_part = kept == ord(PART)
        continues = is_part[1:] & is_part[:-1] & (rows[1:] == rows[:-1])
        begins, ends = _edges(kept != ord(BLANK), continues)
        num_texts = tf.size(characters.splits) - 1
        counts = tf.math.bincount(tf.boolean_mask(rows, begins), None, num_texts, dtype=tf.int64)
        splits = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(counts)], 0)
        firsts, lasts = tf.boolean_mask(places, begins), tf.boolean_mask(places, ends)
        return cls(characters, splits, firsts, lasts)

    def strings(self) -> tf.Tensor:
        """Returns the words, string [W]."""
        places = tf.ragged.range(self.firsts, self.lasts + 1)
        codes = places.with_flat_values(tf.gather(self.characters.codes, places.flat_values))
        return tf.strings.unicode_encode(codes, "UTF-8")

    def by_text(self, column: tf.Tensor, missing: object) -> tf.Tensor:
        """Reshapes a column [W] to [B, maximum number of words], padded with `missing`."""
        rows = tf.RaggedTensor.from_row_splits(column, self.splits, validate=False)
        return rows.to_tensor(missing)

    def outputs(self, name: str) -> Outputs:
        """Returns the character and byte ranges of words, int32; see `by_text` for the shape."""
        begins = tf.gather(self.characters.row_starts(), self.firsts)
        columns = {
            "start": self.firsts - begins,
            "end": self.lasts + 1 - begins,
            "start_byte": tf.gather(self.characters.starts, self.firsts),
            "end_byte": tf.gather(self.characters.ends, self.lasts),
        }
        return {f"{name}_{key}": self.by_text(column, -1) for key, column in columns.items()}


def _edges(is_inside: tf.Tensor, continues: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns which of N items start and end a run. `continues`, [N - 1], joins adjacent items."""
    size = tf.size(is_inside)
    begins = is_inside & ~tf.concat([[False], continues], 0)[:size]
    return begins, is_inside & ~tf.concat([continues, [False]], 0)[:size]


class GraphTagger(tf.Module):
    """Labels words and finds entities of texts in a graph; `logits` runs a model on a batch."""

    def __init__(
        self,
        tokenizer: Any,
        unk_id: int,
        logits: Callable[[Outputs], tf.Tensor],
        labels: Labels,
        max_seq_length: int,
        reading: Reading = DEFAULT_READING,
    ) -> None:
        super().__init__()
        self._tokenize = tokenizer.tokenize
        self._special_ids = tokenizer
        self._unk_id = unk_id
        self._logits = logits
        self._max_seq_length = max_seq_length
        self._names = labels.names
        classes = character_classes()
        if reading.word_unit == "character":
            classes[classes == ord(PART)] = ord(SINGLE)
        self._classes = CodeMap(classes)
        self._has_entities = scheme_of(labels.names, reading.label_scheme) != PLAIN
        if self._has_entities:
            prefixes, types = zip(*map(split_label, labels.names), strict=True)
            self._types = types
            self._type_ids = constant([types.index(kind) for kind in types])
            self._is_outside, self._is_begin, self._is_end = (
                constant([prefix in which for prefix in prefixes]) for which in ("O", "BS", "ES")
            )

    def __call__(self, inputs: Outputs) -> Outputs:
        """Labels the words of `texts`, string [B]. docs/exporting.md lists the outputs."""
        characters = decode(inputs["texts"])
        words = GraphWords.find(characters, self._classes(characters.codes))
        texts = words.strings()
        label_ids, probabilities = self._labels(words, texts)
        outputs = {
            "words": words.by_text(texts, ""),
            "word_labels": words.by_text(tf.gather(tf.constant(self._names), label_ids), ""),
            "word_probabilities": words.by_text(probabilities, 0.0),
            **words.outputs("word"),
        }
        if self._has_entities:
            outputs |= self._entities(words, label_ids, probabilities)
        return outputs

    def _labels(self, words: GraphWords, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the most probable labels, int32 [W], and their probabilities, float32 [W]."""
        pieces = self._tokenize(texts)
        # Words without pieces get the unknown token.
        is_empty = pieces.row_lengths()[:, None] == 0
        unknown = tf.RaggedTensor.from_tensor(tf.fill([tf.size(texts), 1], self._unk_id))
        pieces = tf.concat([pieces, tf.ragged.boolean_mask(unknown, is_empty)], axis=1)
        begins, sizes, owners, positions = windows(
            pieces.row_lengths(), words.splits, self._max_seq_length - SPECIAL_TOKENS
        )
        places = tf.ragged.range(begins, begins + sizes)
        rows = places.with_flat_values(tf.gather(pieces.flat_values, places.flat_values))
        label_ids, probabilities = self._token_labels(joined(rows, rows[:, :0], self._special_ids))
        tokens_before = tf.cumsum(sizes + SPECIAL_TOKENS, exclusive=True)
        answers = tf.gather(tokens_before, owners) + positions
        return tf.gather(label_ids, answers), tf.gather(probabilities, answers)

    def _token_labels(self, sequences: Sequences) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the most probable labels of all tokens, int32 [T], and their probabilities."""
        # Windows of similar lengths share a batch to reduce padding.
        lengths = sequences.ids.row_lengths()
        order = tf.argsort(lengths, direction="DESCENDING")
        size = max(1, _TOKENS_AT_ONCE // self._max_seq_length)

        def some(begin: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            inputs = sequences.rows(order[begin : begin + size]).padded()
            found, is_real = class_outputs(self._logits(inputs)), inputs["input_mask"] == 1
            best = tf.reduce_max(found["probabilities"], axis=-1)
            return tf.boolean_mask(found["predictions"], is_real), tf.boolean_mask(best, is_real)

        columns = tf.map_fn(
            some,
            tf.range(0, tf.size(order), size),
            fn_output_signature=tuple(
                tf.RaggedTensorSpec([None], dtype) for dtype in (tf.int32, tf.float32)
            ),
            parallel_iterations=1,
        )
        rows = (
            tf.RaggedTensor.from_row_lengths(column.values, tf.gather(lengths, order))
            for column in columns
        )
        label_ids, probabilities = (tf.gather(row, tf.argsort(order)).values for row in rows)
        return label_ids, probabilities

    def _entities(
        self, words: GraphWords, label_ids: tf.Tensor, probabilities: tf.Tensor
    ) -> Outputs:
        """Finds the same entities as `entities` in labels.py."""
        texts = tf.ragged.row_splits_to_segment_ids(words.splits)
        is_inside = tf.gather(self._is_outside, label_ids) == 0
        types = tf.gather(self._type_ids, label_ids)
        is_begin = tf.gather(self._is_begin, label_ids) > 0
        is_end = tf.gather(self._is_end, label_ids) > 0
        continues = (
            is_inside[1:]
            & is_inside[:-1]
            & (texts[1:] == texts[:-1])
            & (types[1:] == types[:-1])
            & ~is_begin[1:]
            & ~is_end[:-1]
        )
        begins, ends = _edges(is_inside, continues)
        splits = tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0)
        entities = GraphWords(
            words.characters,
            tf.gather(splits, words.splits),
            tf.boolean_mask(words.firsts, begins),
            tf.boolean_mask(words.lasts, ends),
        )
        owners = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        means = tf.math.segment_mean(
            tf.boolean_mask(probabilities, is_inside), tf.boolean_mask(owners, is_inside)
        )
        names = tf.gather(tf.constant(self._types), tf.boolean_mask(types, begins))
        return {
            "entities": entities.by_text(entities.strings(), ""),
            "entity_types": entities.by_text(names, ""),
            "entity_probabilities": entities.by_text(means, 0.0),
            **entities.outputs("entity"),
        }


def windows(
    counts: tf.Tensor, splits: tf.Tensor, room: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Splits texts into windows like `token_features`, of at most `room` pieces.

    `counts` are the numbers of pieces of the words, int64 [W]. For `splits` see `GraphWords`.

    Returns:
        The first piece and the number of pieces of each window, int64 [N], and the window of each
        word and the position of its first piece in the window, int64 [W].
    """
    step = (room + 1) // 2
    ends = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(counts)], 0)
    bounds = tf.gather(ends, splits)
    sizes = bounds[1:] - bounds[:-1]
    rests = tf.maximum(sizes - room, 0)  # start of the last window
    last = (rests + step - 1) // step  # index of the last window
    texts = tf.ragged.row_splits_to_segment_ids(splits)
    bounds, sizes, rests, last = (
        tf.gather(column, texts) for column in (bounds, sizes, rests, last)
    )
    pieces = ends[:-1] - bounds
    before_last = tf.maximum(last - 1, 0)
    numbers = tf.clip_by_value((2 * pieces - room + step) // (2 * step), 0, before_last)
    is_last = 2 * pieces >= before_last * step + rests + room
    numbers = tf.where(is_last, last, numbers)
    starts = tf.minimum(numbers * step, rests)
    is_new = (texts[1:] != texts[:-1]) | (numbers[1:] != numbers[:-1])
    is_new = tf.concat([[True], is_new], 0)[: tf.size(pieces)]
    return (
        tf.boolean_mask(bounds + starts, is_new),
        tf.minimum(tf.boolean_mask(sizes, is_new), room),
        tf.cumsum(tf.cast(is_new, tf.int64)) - 1,
        1 + pieces - starts,
    )


def character_classes() -> np.ndarray:
    """Returns the result of `character_class` for each code point, int32 [0x110000]."""
    classes = np.full(0x110000, ord(PART), np.int32)
    codes = possible_codes()
    classes[list(codes)] = [ord(character_class(code)) for code in codes]
    return classes
