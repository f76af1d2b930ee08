"""The demo: all steps from text to an exported model and a classifier.

Each step is a command, which is printed before it runs. On two cores it takes a few minutes.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import Counter
from pathlib import Path

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import is_remote
from albert_tf.pretraining.batching import evaluation_batches
from albert_tf.pretraining.instances import pretraining_feature_specs
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tools.commands import read_evaluations, run
from albert_tf.tools.python_corpus import LABEL_COLUMN, TEXT_COLUMN, write_chapters, write_corpus

PUBLISHED_FILES = (  # no optimizer, no logs
    "albert_config.json",
    "30k-clean.model",
    "30k-clean.vocab",
    "model.ckpt-best.index",
    "model.ckpt-best.data-00000-of-00001",
)
TEXTS = (
    "Return True [MASK] the object is a string.",
    "This method [MASK] not be called directly.",
    "The first argument is the name of the [MASK].",
    "If the [MASK] is not given, the default value is used.",
    "Raise an exception if the file does [MASK] exist.",
)
_SIZES = {"max_seq_length": 32, "max_predictions_per_seq": 10}


def run_demo(
    output_dir: str,
    *,
    num_train_steps: int,
    vocab_size: int,
    max_documents: int | None = None,
    num_fine_tuning_steps: int = 0,
) -> None:
    """Pretrains, evaluates and exports a model, fills in blanks, and fine-tunes a classifier.

    Args:
        output_dir: local directory. The results of an earlier demo are replaced.
        num_train_steps: number of pretraining steps.
        vocab_size: size of the vocabulary.
        max_documents: maximum number of documents in the corpus. If `None`, all are used.
        num_fine_tuning_steps: number of steps of the classifier; 0 skips it.

    Raises:
        ValueError: the directory is remote or contains other files, or a step failed.
    """
    start, out = time.monotonic(), Path(output_dir)
    model, published = out / "model", out / "published"
    marker = out / "demo_settings.json"  # exists in directories of a demo
    if is_remote(output_dir) or (out.exists() and not marker.exists() and any(out.glob("*"))):
        raise UserError(
            "`output_dir` must be a local directory that is empty, does not exist, or contains an "
            f"earlier demo. Received: {output_dir!r}"
        )
    for name in ("model", "pretraining", "published", "evaluation", "chapters", "classifier"):
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    marker.write_text("{}\n")

    _title("An English corpus from Python's own documentation")
    write_corpus(out / "corpus", max_documents)
    _title("A SentencePiece vocabulary")
    run(
        "train_sentencepiece",
        input_file=out / "corpus" / "training.txt",
        model_prefix=model / "30k-clean",
        vocab_size=vocab_size,
    )
    _title("Pretraining records, with new masks in each pass")
    records = {part: out / "records" / f"{part}.tfrecord" for part in ("training", "held_out")}
    for part, dupe_factor in (("training", 10), ("held_out", 1)):
        run(
            "create_pretraining_data",
            input_file=out / "corpus" / f"{part}.txt",
            output_file=records[part],
            spm_model_file=model / "30k-clean.model",
            masked_lm_prob=0.3,  # twice the usual share, to learn in minutes
            dupe_factor=dupe_factor,
            sentence_pairs="adjacent",
            **_SIZES,
        )
    _title("Pretraining")
    config = AlbertConfig(
        vocab_size=vocab_size,
        embedding_size=128,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=_SIZES["max_seq_length"],
    )
    config.to_json_file(str(model / "albert_config.json"))
    run(
        "run_pretraining",
        do_train=True,
        do_eval=True,
        input_file=records["training"],
        eval_input_file=records["held_out"],
        albert_config_file=model / "albert_config.json",
        output_dir=out / "pretraining",
        train_batch_size=128,
        num_train_steps=num_train_steps,
        num_warmup_steps=min(100, num_train_steps // 10),
        learning_rate=0.02,
        save_checkpoints_steps=math.ceil(num_train_steps / 4),
        log_steps=math.ceil(num_train_steps / 20),
        shuffle_buffer_size=20000,
        **_SIZES,
    )
    _title("Publishing")
    published.mkdir()
    for name in PUBLISHED_FILES:
        shutil.copy(out / "pretraining" / name, published)
        print(f"{published / name} ({os.path.getsize(published / name):,} bytes)")
    _title("Evaluating the exported model on held-out documents")
    run(
        "run_pretraining",
        do_train=False,
        do_eval=True,
        input_file=records["held_out"],
        albert_config_file=published / "albert_config.json",
        eval_checkpoint=published / "model.ckpt-best",
        output_dir=out / "evaluation",
        max_eval_steps=1000,
        **_SIZES,
    )
    _compare_with_baselines(out / "evaluation", records["held_out"], published)
    _title("Filling in blanks")
    run("fill_mask", model_dir=published, text=TEXTS)
    if num_fine_tuning_steps:
        _title("Fine-tuning mini: which chapter is this paragraph from?")
        _classify_chapters(out, num_fine_tuning_steps)
    print(f"\nAll output is in {out} ({time.monotonic() - start:.0f} s in total).")
    print(f"Use the model in any command with --albert_hub_module_handle={published}")


def _title(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def _compare_with_baselines(evaluation: Path, records: Path, published: Path) -> None:
    """Prints the accuracies and the accuracies of the most frequent answers."""
    specs = pretraining_feature_specs(**_SIZES)
    tokens: Counter[int] = Counter()
    orders: Counter[int] = Counter()
    for batch in evaluation_batches([str(records)], specs, 1024).as_numpy_iterator():
        tokens.update(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0].tolist())
        orders.update(batch["next_sentence_labels"][:, 0].tolist())
    ((token_id, count),) = tokens.most_common(1)
    tokenizer = load_tokenizer(spm_model_file=str(published / "30k-clean.model"))
    (results,) = read_evaluations(str(evaluation)).values()
    print(
        f"\nmasked-LM accuracy       {results['masked_lm_accuracy']:6.1%}"
        f"   against {count / tokens.total():.1%} for always answering "
        f"{tokenizer.tokens[token_id]!r}, the most frequent of the {tokens.total():,} "
        "masked tokens of these documents"
        f"\nsentence-order accuracy  {results['sentence_order_accuracy']:6.1%}"
        f"   against 50.0% by chance and {max(orders.values()) / orders.total():.1%} for always "
        "giving the more frequent answer"
    )


def _classify_chapters(out: Path, steps: int) -> None:
    """Fine-tunes mini to classify paragraphs by chapter; prints a prediction per chapter."""
    _, dev = write_chapters(out / "chapters")
    chapters = Counter(chapter for _, chapter in dev)
    asked = [next(row for row in dev if row[1] == chapter) for chapter in chapters]
    questions, answers = out / "chapters" / "asked.txt", out / "chapters" / "answers.tsv"
    questions.write_text("".join(f"{text}\n" for text, _ in asked), encoding="utf-8")
    run(
        "run_classifier",
        task_name="custom",
        train_file=out / "chapters" / "train.csv",
        dev_file=out / "chapters" / "dev.csv",
        text_a_column=TEXT_COLUMN,
        label_column=LABEL_COLUMN,
        albert_hub_module_handle="mini",
        output_dir=out / "classifier",
        do_train=True,
        do_eval=True,
        max_seq_length=80,
        train_batch_size=16,
        learning_rate=1.5e-4,
        train_step=steps,
        warmup_step=steps // 10,
        save_checkpoints_steps=steps,
        log_steps=math.ceil(steps / 5),
        predict_file=questions,
        predict_output_file=answers,
    )
    (results,) = read_evaluations(str(out / "classifier")).values()
    share = max(chapters.values()) / len(dev)
    print(
        f"\nchapter accuracy         {results['eval_accuracy']:6.1%}   against {share:.1%} for "
        f"always giving the most frequent of the {len(chapters)} chapters"
    )
    for (text, chapter), line in zip(asked, answers.read_text("utf-8").splitlines(), strict=True):
        print(f"\n{text}\n  {line.split()[0]}, from {chapter}")
