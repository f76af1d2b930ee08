"""The whole way from text to a published model, small enough for two processor cores and minutes.

It ends with a classifier that is fine-tuned from the model that comes with the package. Every step
that a user would take by a command is taken by that command, shown as it is run.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from albert_tf.config import AlbertConfig
from albert_tf.data.files import is_remote
from albert_tf.pretraining.batching import evaluation_batches
from albert_tf.pretraining.instances import pretraining_feature_specs
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tools.commands import run
from albert_tf.tools.glue_results import read_evaluations
from albert_tf.tools.python_corpus import LABEL_COLUMN, TEXT_COLUMN, write_chapters, write_corpus

PRETRAINED = "mini"
# What a release consists of: no optimizer, no logs.
PUBLISHED_FILES = (
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
_SETTINGS_FILE = "demo_settings.json"  # a directory that has it is of a demo
# Twice the usual share of the tokens is masked, to learn in minutes.
_SIZES = {"max_seq_length": 32, "max_predictions_per_seq": 10}
_MASKED_LM_PROB = 0.3


class Baselines(NamedTuple):
    """What the most frequent token and the more frequent label would score on records."""

    predictions: int  # masked tokens in the records
    token_id: int
    masked_lm_accuracy: float
    sentence_order_accuracy: float


def baselines(records: str, max_seq_length: int, max_predictions_per_seq: int) -> Baselines:
    """Finds the most frequent answers among the labels of a file of pretraining records."""
    specs = pretraining_feature_specs(max_seq_length, max_predictions_per_seq)
    tokens: Counter[int] = Counter()
    orders: Counter[int] = Counter()
    for batch in evaluation_batches([records], specs, 1024).as_numpy_iterator():
        tokens.update(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0].tolist())
        orders.update(batch["next_sentence_labels"][:, 0].tolist())
    token_id, count = tokens.most_common(1)[0]
    return Baselines(
        predictions=tokens.total(),
        token_id=token_id,
        masked_lm_accuracy=count / tokens.total(),
        sentence_order_accuracy=max(orders.values()) / orders.total(),
    )


def run_demo(
    output_dir: str,
    *,
    num_train_steps: int,
    vocab_size: int,
    max_documents: int | None = None,
    num_fine_tuning_steps: int = 0,
) -> None:
    """Builds, trains, evaluates and publishes a model, and lets it fill in blanks.

    What an earlier demo left in `output_dir` is replaced. The corpus has all documents unless
    `max_documents` is given, and without steps of fine-tuning there is no classifier.

    Raises:
        ValueError: the directory is remote, or not one of an earlier demo; or a step failed, and
            what it printed says why.
    """
    start = time.monotonic()
    out = _emptied(output_dir)
    _title("An English corpus from Python's own documentation")
    write_corpus(out / "corpus", max_documents)
    _title("A SentencePiece vocabulary")
    run(
        "train_sentencepiece",
        input_file=out / "corpus" / "training.txt",
        model_prefix=out / "model" / "30k-clean",
        vocab_size=vocab_size,
    )
    _title("Pretraining records, with new masks in each pass")
    records = {part: out / "records" / f"{part}.tfrecord" for part in ("training", "held_out")}
    for part, dupe_factor in (("training", 10), ("held_out", 1)):
        run(
            "create_pretraining_data",
            input_file=out / "corpus" / f"{part}.txt",
            output_file=records[part],
            spm_model_file=out / "model" / "30k-clean.model",
            masked_lm_prob=_MASKED_LM_PROB,
            dupe_factor=dupe_factor,
            sentence_pairs="adjacent",
            **_SIZES,
        )
    _title("Pretraining")
    _pretrain(out, records, vocab_size, num_train_steps)
    _title("Publishing")
    published = out / "published"
    published.mkdir()
    for name in PUBLISHED_FILES:
        shutil.copy(out / "pretraining" / name, published)
        print(f"{published / name} ({os.path.getsize(published / name):,} bytes)")
    _title("Evaluating the exported model on held-out documents")
    _evaluate(out, records["held_out"])
    _title("Filling in blanks")
    run("fill_mask", model_dir=published, text=TEXTS)
    if num_fine_tuning_steps:
        _title(f"Which chapter is this paragraph from? {PRETRAINED} learns it")
        classify_chapters(out, num_fine_tuning_steps)
    print(f"\nAll output is in {out} ({time.monotonic() - start:.0f} s in total).")
    print(f"Use the model in any command with --albert_hub_module_handle={published}")


def _title(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def _emptied(output_dir: str) -> Path:
    """The directory, if it is the demo's own, without the models of an earlier demo."""
    out = Path(output_dir)
    is_ours = not out.exists() or (out / _SETTINGS_FILE).exists()
    if is_remote(output_dir) or not (is_ours or (out.is_dir() and not any(out.iterdir()))):
        raise ValueError(
            "--output_dir must be a local directory that is empty, does not exist, or is from an "
            f"earlier demo. Received: {output_dir!r}"
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / _SETTINGS_FILE).write_text("{}\n")
    for name in ("model", "pretraining", "published", "evaluation", "chapters", "classifier"):
        shutil.rmtree(out / name, ignore_errors=True)
    return out


def _pretrain(out: Path, records: dict[str, Path], vocab_size: int, steps: int) -> None:
    config = AlbertConfig(
        vocab_size=vocab_size,
        embedding_size=128,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=_SIZES["max_seq_length"],
    )
    config_file = out / "model" / "albert_config.json"
    config.to_json_file(str(config_file))
    run(
        "run_pretraining",
        do_train=True,
        do_eval=True,
        input_file=records["training"],
        eval_input_file=records["held_out"],
        albert_config_file=config_file,
        output_dir=out / "pretraining",
        train_batch_size=128,
        num_train_steps=steps,
        num_warmup_steps=min(100, steps // 10),
        learning_rate=0.02,
        save_checkpoints_steps=math.ceil(steps / 4),
        log_steps=math.ceil(steps / 20),
        shuffle_buffer_size=20000,
        **_SIZES,
    )


def _evaluate(out: Path, records: Path) -> None:
    run(
        "run_pretraining",
        do_train=False,
        do_eval=True,
        input_file=records,
        albert_config_file=out / "published" / "albert_config.json",
        eval_checkpoint=out / "published" / "model.ckpt-best",
        output_dir=out / "evaluation",
        max_eval_steps=1000,
        **_SIZES,
    )
    results = _results(out / "evaluation")
    guess = baselines(str(records), **_SIZES)
    tokenizer = load_tokenizer(spm_model_file=str(out / "published" / "30k-clean.model"))
    print(
        f"\nmasked-LM accuracy       {results['masked_lm_accuracy']:6.1%}"
        f"   against {guess.masked_lm_accuracy:.1%} for always answering "
        f"{tokenizer.tokens[guess.token_id]!r}, the most frequent of the {guess.predictions:,} "
        "masked tokens of these documents"
        f"\nsentence-order accuracy  {results['sentence_order_accuracy']:6.1%}"
        f"   against 50.0% by chance and {guess.sentence_order_accuracy:.1%} for always giving the "
        "more frequent answer"
    )


def classify_chapters(out: Path, steps: int) -> None:
    """Fine-tunes PRETRAINED to tell chapters of Python's documentation apart, and asks it."""
    _, dev = write_chapters(out / "chapters")
    chapters = Counter(paragraph.chapter for paragraph in dev)
    asked = [next(p for p in dev if p.chapter == chapter) for chapter in chapters]
    questions, answers = out / "chapters" / "asked.txt", out / "chapters" / "answers.tsv"
    questions.write_text("".join(f"{p.text}\n" for p in asked), encoding="utf-8")
    run(
        "run_classifier",
        task_name="custom",
        train_file=out / "chapters" / "train.csv",
        dev_file=out / "chapters" / "dev.csv",
        text_a_column=TEXT_COLUMN,
        label_column=LABEL_COLUMN,
        albert_hub_module_handle=PRETRAINED,
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
    accuracy = _results(out / "classifier")["eval_accuracy"]
    share = max(chapters.values()) / len(dev)
    print(
        f"\nchapter accuracy         {accuracy:6.1%}   against {share:.1%} for always giving the "
        f"most frequent of the {len(chapters)} chapters"
    )
    for paragraph, line in zip(asked, answers.read_text("utf-8").splitlines(), strict=True):
        print(f"\n{paragraph.text}\n  {line.split()[0]}, from {paragraph.chapter}")


def _results(output_dir: Path) -> dict[str, float]:
    """The last evaluation of a run."""
    evaluations = read_evaluations(str(output_dir / "eval_results.txt"))
    return evaluations[max(evaluations)]
