"""Evaluates a pretrained model on held-out text: masked pieces and sentence order.

    python -m benchmarks.held_out --model=mini --text=heldout.txt

The text has one sentence per line and a blank line between documents. Sentences 1 and 2, 3 and 4,
... of a document are the pairs. Pairs longer than --max_seq_length are omitted. Unlike in
pretraining records, all pairs are adjacent sentences, masked positions are selected individually,
and every masked piece is replaced by [MASK]. Sentence order is evaluated on the unmasked pairs in
both orders, so that guessing gives 50%. Models without a sentence-order head were trained on packed
text, so they get both sentences as segment 0.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import app, flags
from tqdm import tqdm

import albert_tf
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.tokenization.base import Tokenizer

_MODEL = flags.DEFINE_string("model", "mini", "Pretrained model, of any format.")
_TEXT = flags.DEFINE_string("text", None, "Held-out text, one sentence per line.", required=True)
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Maximum length of a pair.", lower_bound=5)
_PROB = flags.DEFINE_float("masked_lm_prob", 0.15, "Fraction of the pieces to mask.", 0.0, 1.0)
_BATCH = flags.DEFINE_integer("batch_size", 32, "Pairs per batch.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 12345, "Random seed of the masks.")

Pair = tuple[list[int], list[int]]


def adjacent_pairs(path: str, tokenizer: Tokenizer) -> Iterator[Pair]:
    """Yields the ids of pairs of adjacent sentences. Each sentence is used once."""
    with open(path, encoding="utf-8") as file:
        waiting: str | None = None
        for line in map(str.strip, file):
            if line and waiting:
                yield tokenizer.encode(waiting), tokenizer.encode(line)
                waiting = None
            else:
                waiting = line


def features(
    pairs: Sequence[Pair], tokenizer: Tokenizer, length: int, second_segment: int = 1
) -> dict[str, np.ndarray]:
    """Returns padded pairs as `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]."""
    ids = np.zeros((len(pairs), length), np.int32)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for row, (first, second) in enumerate(pairs):
        head = [tokenizer.cls_id, *first, tokenizer.sep_id]
        whole = [*head, *second, tokenizer.sep_id]
        ids[row, : len(whole)] = whole
        mask[row, : len(whole)] = 1
        types[row, len(head) : len(whole)] = second_segment
    return {"input_ids": ids, "input_mask": mask, "segment_ids": types}


def main(arguments: Sequence[str]) -> None:
    """Prints accuracy and bits per character of masked pieces, and sentence-order accuracy."""
    del arguments
    model, tokenizer = albert_tf.load(_MODEL.value), albert_tf.load_tokenizer(_MODEL.value)
    if not isinstance(model, AlbertForPretraining):
        raise app.UsageError(f"--model={_MODEL.value} has no masked-LM head.")
    every = list(adjacent_pairs(_TEXT.value, tokenizer))
    pairs = [pair for pair in every if len(pair[0]) + len(pair[1]) + 3 <= _LENGTH.value]
    random = np.random.default_rng(_SEED.value)
    special = [tokenizer.cls_id, tokenizer.sep_id]
    slots = max(1, math.ceil(_PROB.value * _LENGTH.value))
    predict = tf.function(lambda inputs: model(inputs, training=False))
    correct = masked = correct_orders = orders = characters = 0
    nats = 0.0
    for start in tqdm(range(0, len(pairs), _BATCH.value), unit="batch"):
        batch = pairs[start : start + _BATCH.value]
        segment = int(model.has_sentence_order_head)
        inputs = features(batch, tokenizer, _LENGTH.value, segment)
        positions = np.zeros((len(batch), slots), np.int32)
        weights = np.zeros((len(batch), slots), np.float32)
        for row, ids in enumerate(inputs["input_ids"]):
            choices = np.flatnonzero(inputs["input_mask"][row] & ~np.isin(ids, special))
            count = max(1, round(_PROB.value * len(choices)))
            positions[row, :count] = np.sort(random.choice(choices, count, replace=False))
            weights[row, :count] = 1
        labels = np.take_along_axis(inputs["input_ids"], positions, axis=1)
        hidden = inputs["input_ids"].copy()
        for row, count in enumerate(weights.sum(axis=1).astype(int)):
            hidden[row, positions[row, :count]] = tokenizer.mask_id
        outputs = predict({**inputs, "input_ids": hidden, "masked_lm_positions": positions})
        log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"]).numpy()
        label_log_probs = np.take_along_axis(log_probs, labels[..., None], axis=2)[..., 0]
        nats -= float((label_log_probs * weights).sum())
        correct += int(((log_probs.argmax(axis=2) == labels) * weights).sum())
        masked += int(weights.sum())
        pieces = tokenizer.convert_ids_to_tokens(labels[weights > 0].tolist())
        characters += sum(map(len, pieces))  # including the space before a word
        if model.has_sentence_order_head:
            backwards = [(second, first) for first, second in batch]
            for swapped, order in enumerate((batch, backwards)):
                given = features(order, tokenizer, _LENGTH.value)
                given["masked_lm_positions"] = positions
                logits = predict(given)["sentence_order_logits"].numpy()
                correct_orders += int((logits.argmax(axis=1) == swapped).sum())
                orders += len(batch)
    print(f"pairs={len(pairs)} of {len(every)}, masked pieces={masked}")
    print(f"masked_lm_accuracy={correct / masked:.4f} masked_lm_loss={nats / masked:.4f}")
    print(f"bits_per_character={nats / math.log(2) / characters:.3f}")
    if orders:
        print(f"sentence_order_accuracy={correct_orders / orders:.4f} of {orders} orders")


if __name__ == "__main__":
    app.run(main)
