"""The whole way from text to a published model, small enough for two processor cores and minutes.

It ends with a classifier that is fine-tuned from the model that comes with the package.

Every step that a user would take by a command is taken by that command, shown as it is run.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from albert_tf.checkpoints.training_directory import BEST
from albert_tf.commands import run
from albert_tf.config import AlbertConfig
from albert_tf.data.batching import evaluation_batches
from albert_tf.data.files import is_remote, temporary_folder, write_then_rename
from albert_tf.data.pretraining import pretraining_feature_specs
from albert_tf.data.python_chapters import (
    DEV_FILE,
    LABEL_COLUMN,
    TEXT_COLUMN,
    TRAIN_FILE,
    write_chapters,
)
from albert_tf.data.python_corpus import write_corpus
from albert_tf.data.segments import ADJACENT
from albert_tf.evaluation import RESULTS_FILE
from albert_tf.model_files.directory import CONFIG_FILE, SENTENCEPIECE_FILE, SENTENCEPIECE_LIST_FILE
from albert_tf.tokenization import load_tokenizer

SETTINGS_FILE = "demo_settings.json"
PRETRAINED = "mini"
PUBLISHED_FILES = (
    CONFIG_FILE,
    SENTENCEPIECE_FILE,
    SENTENCEPIECE_LIST_FILE,
    f"{BEST}.index",
    f"{BEST}.data-00000-of-00001",
)
TEXTS = (
    "Return True [MASK] the object is a string.",
    "This method [MASK] not be called directly.",
    "The first argument is the name of the [MASK].",
    "If the [MASK] is not given, the default value is used.",
    "Raise an exception if the file does [MASK] exist.",
)


@dataclasses.dataclass(frozen=True)
class DemoSettings:
    """What the demo does.

    Attributes:
        output_dir: local directory of everything that is written.
        num_train_steps: steps of pretraining.
        vocab_size: V.
        max_documents: documents of the corpus; None takes all.
        max_seq_length: S.
        max_predictions_per_seq: P, masked_lm_prob times S.
        masked_lm_prob: fraction of the tokens to predict; twice the usual, to learn in minutes.
        dupe_factor: passes over the text, each masked in its own way.
        train_batch_size: examples of a step.
        learning_rate: largest learning rate of LAMB.
        num_fine_tuning_steps: steps of the classifier at the end; 0 leaves it out.
        fine_tuning_seq_length: S of the classifier.
        fine_tuning_batch_size: examples of a step of it.
        fine_tuning_learning_rate: largest learning rate of AdamW.

    Raises:
        ValueError: the directory is remote, or not one of an earlier demo.
    """

    output_dir: str
    num_train_steps: int
    vocab_size: int
    max_documents: int | None = None
    max_seq_length: int = 32
    max_predictions_per_seq: int = 10
    masked_lm_prob: float = 0.3
    dupe_factor: int = 10
    train_batch_size: int = 128
    learning_rate: float = 0.02
    num_fine_tuning_steps: int = 160
    fine_tuning_seq_length: int = 80
    fine_tuning_batch_size: int = 16
    fine_tuning_learning_rate: float = 1.5e-4

    def __post_init__(self) -> None:
        """Refuses a directory in which the demo could do harm."""
        if is_remote(self.output_dir):
            raise ValueError(f"--output_dir of the demo is a local one. Got {self.output_dir!r}")
        folder = Path(self.output_dir)
        if folder.exists() and not (folder.is_dir() and self._is_ours(folder)):
            raise ValueError(
                f"--output_dir {self.output_dir!r} exists and is not from an earlier demo. Give a "
                "directory that is empty or not there yet."
            )

    @staticmethod
    def _is_ours(folder: Path) -> bool:
        return (folder / SETTINGS_FILE).exists() or not any(folder.iterdir())

    def path(self, *parts: str) -> str:
        """A path below the output directory."""
        return os.path.join(self.output_dir, *parts)

    def model_config(self) -> AlbertConfig:
        """A model that learns something in minutes."""
        return AlbertConfig(
            vocab_size=self.vocab_size,
            embedding_size=128,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=self.max_seq_length,
        )


class Baselines(NamedTuple):
    """What answers without a model would score on records.

    Attributes:
        predictions: masked tokens in the records.
        token_id: the most frequent of them.
        masked_lm_accuracy: of always answering with that token.
        sentence_order_accuracy: of always giving the more frequent label.
    """

    predictions: int
    token_id: int
    masked_lm_accuracy: float
    sentence_order_accuracy: float


def run_demo(settings: DemoSettings) -> None:
    """Builds, trains, evaluates and publishes a model, and lets it fill in blanks.

    What an earlier demo left in the directory is replaced.

    Raises:
        ValueError: a step failed; what it printed says why.
    """
    start = time.monotonic()
    replace_earlier_run(settings)
    with _step("An English corpus out of Python's own documentation"):
        _make_corpus(settings)
    with _step("A SentencePiece vocabulary"):
        _train_vocabulary(settings)
    with _step("Pretraining records, masked anew in each pass"):
        _create_records(settings)
    with _step("Pretraining"):
        _pretrain(settings)
    with _step("Publishing"):
        _publish(settings)
    with _step("Evaluating what was published, on the documents kept back"):
        _evaluate(settings)
    with _step("Filling in blanks"):
        run("fill_mask", model_dir=settings.path("published"), text=TEXTS)
    if settings.num_fine_tuning_steps:
        with _step(f"Which chapter is this paragraph from? {PRETRAINED} learns it"):
            classify_chapters(settings)
    print(f"\nEverything is in {settings.output_dir} ({time.monotonic() - start:.0f} s in all).")
    print(f"Every command takes the model: --albert_hub_module_handle={settings.path('published')}")


def baselines(records: str, max_seq_length: int, max_predictions_per_seq: int) -> Baselines:
    """Finds the most frequent answers among the labels of pretraining records.

    Args:
        records: a TFRecord file.
        max_seq_length: S of the records.
        max_predictions_per_seq: P of the records.
    """
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


@contextmanager
def _step(title: str) -> Iterator[None]:
    start = time.monotonic()
    print(f"\n=== {title}", flush=True)
    yield
    print(f"({time.monotonic() - start:.0f} s)", flush=True)


def replace_earlier_run(settings: DemoSettings) -> None:
    """Makes the directory the demo's own and removes the models of an earlier demo."""
    with write_then_rename(settings.path(SETTINGS_FILE)) as file:
        file.write(json.dumps(dataclasses.asdict(settings), indent=2).encode())
    for folder in ("model", "pretraining", "published", "evaluation", "chapters", "classifier"):
        shutil.rmtree(settings.path(folder), ignore_errors=True)


def _make_corpus(settings: DemoSettings) -> None:
    report = write_corpus(settings.path("corpus"), max_documents=settings.max_documents)
    for part in report:
        print(
            f"{part.path}: {part.documents:,} documents, {part.segments:,} sentences and clauses, "
            f"{part.words:,} words"
        )


def _train_vocabulary(settings: DemoSettings) -> None:
    run(
        "train_sentencepiece",
        input_file=settings.path("corpus", "training.txt"),
        model_prefix=settings.path("model", Path(SENTENCEPIECE_FILE).stem),
        vocab_size=settings.vocab_size,
    )


def _create_records(settings: DemoSettings) -> None:
    for part, dupe_factor in (("training", settings.dupe_factor), ("held_out", 1)):
        run(
            "create_pretraining_data",
            input_file=settings.path("corpus", f"{part}.txt"),
            output_file=settings.path("records", f"{part}.tfrecord"),
            spm_model_file=settings.path("model", SENTENCEPIECE_FILE),
            max_seq_length=settings.max_seq_length,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            masked_lm_prob=settings.masked_lm_prob,
            dupe_factor=dupe_factor,
            sentence_pairs=ADJACENT,
        )


def _pretrain(settings: DemoSettings) -> None:
    config_file = settings.path("model", CONFIG_FILE)
    settings.model_config().to_json_file(config_file)
    steps = settings.num_train_steps
    run(
        "run_pretraining",
        do_train=True,
        do_eval=True,
        input_file=settings.path("records", "training.tfrecord"),
        eval_input_file=settings.path("records", "held_out.tfrecord"),
        albert_config_file=config_file,
        output_dir=settings.path("pretraining"),
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        train_batch_size=settings.train_batch_size,
        num_train_steps=steps,
        num_warmup_steps=min(100, steps // 10),
        learning_rate=settings.learning_rate,
        save_checkpoints_steps=math.ceil(steps / 4),
        log_steps=math.ceil(steps / 20),
        shuffle_buffer_size=20000,
    )


def _publish(settings: DemoSettings) -> None:
    """Copies what a release consists of: no optimiser, no logs."""
    with temporary_folder(settings.path("published")) as temporary:
        for name in PUBLISHED_FILES:
            shutil.copy(settings.path("pretraining", name), temporary)
        os.rename(temporary, settings.path("published"))
    for name in PUBLISHED_FILES:
        path = settings.path("published", name)
        print(f"{path} ({os.path.getsize(path):,} bytes)")


def _evaluate(settings: DemoSettings) -> None:
    records = settings.path("records", "held_out.tfrecord")
    run(
        "run_pretraining",
        do_train=False,
        do_eval=True,
        input_file=records,
        albert_config_file=settings.path("published", CONFIG_FILE),
        eval_checkpoint=settings.path("published", BEST),
        output_dir=settings.path("evaluation"),
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        max_eval_steps=1000,
    )
    results = _read_results(settings.path("evaluation", RESULTS_FILE))
    guess = baselines(records, settings.max_seq_length, settings.max_predictions_per_seq)
    tokenizer = load_tokenizer(spm_model_file=settings.path("published", SENTENCEPIECE_FILE))
    print(
        f"\nmasked-LM accuracy       {results['masked_lm_accuracy']:6.1%}"
        f"   against {guess.masked_lm_accuracy:.1%} for always answering "
        f"{tokenizer.tokens[guess.token_id]!r}, the most frequent of the {guess.predictions:,} "
        "masked tokens of these documents"
        f"\nsentence-order accuracy  {results['sentence_order_accuracy']:6.1%}"
        f"   against 50.0% by chance and {guess.sentence_order_accuracy:.1%} for always giving the "
        "more frequent answer"
    )


def classify_chapters(settings: DemoSettings) -> None:
    """Fine-tunes PRETRAINED to tell chapters of Python's documentation apart, and asks it."""
    train, dev = write_chapters(settings.path("chapters"))
    chapters = list(dict.fromkeys(paragraph.chapter for paragraph in train))
    print(
        f"{settings.path('chapters')}: {len(train):,} paragraphs to train on and {len(dev):,} to "
        f"evaluate, of the chapters {', '.join(chapters)}"
    )
    asked = [next(p for p in dev if p.chapter == chapter) for chapter in chapters]
    questions, answers = (settings.path("chapters", name) for name in ("asked.txt", "answers.tsv"))
    with write_then_rename(questions) as file:
        file.write("".join(f"{paragraph.text}\n" for paragraph in asked).encode())
    steps = settings.num_fine_tuning_steps
    run(
        "run_classifier",
        task_name="custom",
        train_file=settings.path("chapters", TRAIN_FILE),
        dev_file=settings.path("chapters", DEV_FILE),
        text_a_column=TEXT_COLUMN,
        label_column=LABEL_COLUMN,
        albert_hub_module_handle=PRETRAINED,
        output_dir=settings.path("classifier"),
        do_train=True,
        do_eval=True,
        max_seq_length=settings.fine_tuning_seq_length,
        train_batch_size=settings.fine_tuning_batch_size,
        learning_rate=settings.fine_tuning_learning_rate,
        train_step=steps,
        warmup_step=steps // 10,
        save_checkpoints_steps=steps,
        log_steps=math.ceil(steps / 5),
        predict_file=questions,
        predict_output_file=answers,
    )
    share = max(Counter(paragraph.chapter for paragraph in dev).values()) / len(dev)
    accuracy = _read_results(settings.path("classifier", RESULTS_FILE))["eval_accuracy"]
    print(
        f"\nchapter accuracy         {accuracy:6.1%}"
        f"   against {share:.1%} for always giving the most frequent of the "
        f"{len(chapters)} chapters"
    )
    given = Path(answers).read_text(encoding="utf-8").splitlines()
    for paragraph, line in zip(asked, given, strict=True):
        label, *shares = line.split("\t")
        probability = float(dict(share.rsplit("=", 1) for share in shares)[label])
        is_right = "right" if label == paragraph.chapter else f"it is {paragraph.chapter}"
        print(f"\n{paragraph.text}\n  {label} {probability:.1%} ({is_right})")


def _read_results(path: str) -> dict[str, float]:
    """Reads the `key = value` lines of an evaluation; of several, the last."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" = ") for line in lines if " = " in line)
    return {key: float(value) for key, value in pairs}
