"""Sentence order is learned from text in which it can be seen."""

import random

import albert_tf

NUMBERS = [f"number{value}" for value in range(10)]
SIZES = {"max_seq_length": 13, "max_predictions_per_seq": 2}


def write_records(folder, name, seed, num_documents):
    """Writes documents of four increasing numbers, one per sentence, and their records."""
    draw = random.Random(seed)
    documents = [
        "\n".join(
            f"{NUMBERS[value]} {NUMBERS[value]}" for value in sorted(draw.sample(range(10), 4))
        )
        for _ in range(num_documents)
    ]
    (folder / f"{name}.txt").write_text("\n\n".join(documents))
    settings = albert_tf.PretrainingDataSettings(
        input_file=str(folder / f"{name}.txt"),
        output_file=str(folder / f"{name}.tfrecord"),
        vocab_file=str(folder / "vocab.txt"),
        sentence_pairs="adjacent",
        short_seq_prob=0,
        dupe_factor=4,
        ngram=1,
        num_workers=1,
        **SIZES,
    )
    albert_tf.create_pretraining_data(settings)
    return settings.output_file


def test_a_small_model_learns_the_order_of_increasing_numbers(tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NUMBERS]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    albert_tf.AlbertConfig(
        vocab_size=len(vocabulary),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=14,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    ).to_json_file(str(tmp_path / "config.json"))
    settings = albert_tf.PretrainingSettings(
        input_file=write_records(tmp_path, "train", 1, 500),
        eval_input_file=write_records(tmp_path, "heldout", 2, 60),
        output_dir=str(tmp_path / "model"),
        albert_config_file=str(tmp_path / "config.json"),
        vocab_file=str(tmp_path / "vocab.txt"),
        do_eval=True,
        optimizer="adamw",
        train_batch_size=32,
        learning_rate=3e-3,
        num_train_steps=200,
        num_warmup_steps=20,
        save_checkpoints_steps=200,
        **SIZES,
    )
    scores = albert_tf.run_pretraining(settings).scores
    assert scores["sentence_order_accuracy"] > 0.9, scores
