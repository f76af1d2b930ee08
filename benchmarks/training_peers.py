"""Times a pretraining step of this package, transformers and KerasHub on a CPU.

All of them train a masked LM with random weights on the same batch without padding, in float32,
without dropout, with AdamW and clipping by the global norm. This package also trains sentence
order, and so does transformers, which computes the scores of all tokens instead of 20 per sequence.
Each round times every library in a new process, and the best step of all rounds counts, because
other programs can only make a step slower. The first step, which traces and compiles, is not
counted.

    python -m benchmarks.training_peers --batch_size=8 --max_seq_length=128
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
from absl import app, flags

from benchmarks.timing import peak_memory, seconds

LIBRARIES = ("albert_tf", "transformers", "keras_hub")

flags.DEFINE_string("preset", "base_v2", "Model.")
flags.DEFINE_integer("batch_size", 8, "Number of sequences.")
flags.DEFINE_integer("max_seq_length", 128, "Sequence length.")
flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked tokens per sequence.")
flags.DEFINE_integer("rounds", 2, "Number of processes per library.")
flags.DEFINE_integer("steps", 4, "Steps per process, in addition to the first.")
flags.DEFINE_enum("library", None, LIBRARIES, "Time only this library, in this process.")
FLAGS = flags.FLAGS

Step = Callable[[], object]
RATE, DECAY, CLIP = 1e-4, 0.01, 1.0


def batch(vocab_size: int) -> dict[str, np.ndarray]:
    """Returns ids [B, S], segments [B, S], positions [B, P], labels [B, P] and order [B]."""
    B, S, P = FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    rng = np.random.default_rng(0)
    positions = [rng.choice(np.arange(1, S), P, replace=False) for _ in range(B)]
    return {
        "ids": rng.integers(5, vocab_size, (B, S)),
        "segments": np.arange(S) >= rng.integers(1, S, (B, 1)),
        "positions": np.sort(positions),
        "labels": rng.integers(5, vocab_size, (B, P)),
        "order": rng.integers(0, 2, B),
    }


def albert_tf_step() -> Step:
    """Returns a step of this package."""
    import tensorflow as tf

    from albert_tf.config import AlbertConfig
    from benchmarks.pretraining import pretraining_trainer

    config = AlbertConfig.from_preset(FLAGS.preset)
    trainer = pretraining_trainer(
        config,
        FLAGS.max_seq_length,
        FLAGS.max_predictions_per_seq,
        optimizer="adamw",
        train_batch_size=FLAGS.batch_size,
    )
    data = batch(config.vocab_size)
    columns = {
        "input_ids": data["ids"],
        "input_mask": np.ones_like(data["ids"]),
        "segment_ids": data["segments"],
        "masked_lm_positions": data["positions"],
        "masked_lm_ids": data["labels"],
        "next_sentence_labels": data["order"][:, None],
    }
    inputs = {name: tf.constant(values.astype(np.int32)) for name, values in columns.items()}
    inputs["masked_lm_weights"] = tf.ones(data["labels"].shape)
    inputs["example_weights"] = tf.ones(data["order"].shape)
    return lambda: trainer.train_step(inputs)["gradient_norm"].numpy()


def transformers_step() -> Step:
    """Returns a step of transformers."""
    import torch
    import transformers

    from albert_tf.config import AlbertConfig

    own = AlbertConfig.from_preset(FLAGS.preset)
    model = transformers.AlbertForPreTraining(
        transformers.AlbertConfig(
            vocab_size=own.vocab_size,
            embedding_size=own.embedding_size,
            hidden_size=own.hidden_size,
            num_hidden_layers=own.num_hidden_layers,
            num_attention_heads=own.num_attention_heads,
            intermediate_size=own.intermediate_size,
            hidden_dropout_prob=0,
            attention_probs_dropout_prob=0,
        )
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    data = batch(own.vocab_size)
    labels = np.full_like(data["ids"], -100)
    np.put_along_axis(labels, data["positions"], data["labels"], axis=1)
    inputs = {
        "input_ids": torch.from_numpy(data["ids"]),
        "token_type_ids": torch.from_numpy(data["segments"].astype(np.int64)),
        "labels": torch.from_numpy(labels),
        "sentence_order_label": torch.from_numpy(data["order"]),
    }

    def step() -> float:
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.item()

    return step


def keras_hub_step() -> Step:
    """Returns a step of KerasHub with the backend TensorFlow."""
    import keras
    import keras_hub

    from albert_tf.config import AlbertConfig

    own = AlbertConfig.from_preset(FLAGS.preset)
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=own.vocab_size,
        num_layers=own.num_hidden_layers,
        num_heads=own.num_attention_heads,
        embedding_dim=own.embedding_size,
        hidden_dim=own.hidden_size,
        intermediate_dim=own.intermediate_size,
        dropout=0.0,
        max_sequence_length=512,
    )
    model = keras_hub.models.AlbertMaskedLM(backbone, preprocessor=None)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.AdamW(RATE, weight_decay=DECAY, global_clipnorm=CLIP),
    )
    data = batch(own.vocab_size)
    inputs = {
        "token_ids": data["ids"].astype(np.int32),
        "segment_ids": data["segments"].astype(np.int32),
        "padding_mask": np.ones(data["ids"].shape, bool),
        "mask_positions": data["positions"].astype(np.int32),
    }
    return lambda: model.train_on_batch(inputs, data["labels"])


def main(_: list[str]) -> None:
    """Prints the best time of a step, and the largest peak memory."""
    if FLAGS.library:
        step = globals()[f"{FLAGS.library}_step"]()
        step()
        print(min(seconds(step) for _ in range(FLAGS.steps)), peak_memory())
        return
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in LIBRARIES}
    for _ in range(FLAGS.rounds):
        for name in LIBRARIES:
            command = [sys.executable, "-m", "benchmarks.training_peers", *sys.argv[1:]]
            done = subprocess.run(
                [*command, f"--library={name}"], capture_output=True, text=True, check=True
            )
            best, memory = map(float, done.stdout.split()[-2:])
            found[name].append((best, memory))
    for name, values in found.items():
        best, memory = min(values)[0], max(memory for _, memory in values)
        print(f"{name}: {best:.3f} s, peak memory of the process {memory:.1f} GB")


if __name__ == "__main__":
    app.run(main)
