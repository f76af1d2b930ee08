"""Compares the speed of fine-tuning on a CPU: this package and transformers.

    python -m benchmarks.fine_tuning --data_dir=GLUE --entities_dir=WNUT17
    python -m benchmarks.fine_tuning --data=pairs --preset=base_v2 --batch_size=16 --num_steps=50
    python -m benchmarks.fine_tuning --peers= --baseline=../other_clone

A job reads examples and a pretrained model from files, tokenizes, trains, and saves a checkpoint
with the state of the optimizer. Each job runs in a new process, and the libraries take turns. The
table shows the median of all rounds. Examples per second and CPU time include compilation, but not
imports; "process" includes imports. A ratio above 1 means
that albert_tf is better. All libraries train in float32 with AdamW and the same learning rate and
pad a batch to its longest sequence. They use one thread for each CPU on which the process may run.

`transformers-grouped` selects batches of sequences with similar lengths, an option of this library.
It needs absl-py, accelerate, PyTorch and transformers, which may be in the environment of another
interpreter (--peer_python). --baseline adds another version of this package, such as 1.0.0. It runs
in the environment .venv of that clone, or in this one if there is none.

Sentences are from SST-2, pairs from MRPC, words to be labeled from WNUT 2017. Without --data_dir or
--entities_dir, examples are random words and labels. Their numbers of tokens have a log-normal
distribution, similar to the training set that they replace.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.timing import peak_memory, seconds

ROOT = Path(__file__).resolve().parents[1]
OWN, BASELINE = "albert_tf", "baseline"
# Names of `Trainer` in this benchmark, and how it selects the examples of a batch.
PEERS = {"transformers": "random", "transformers-grouped": "group_by_length"}
PEER_PACKAGES = "absl-py accelerate torch transformers"
# Median number of tokens, standard deviation of its logarithm, and maximum.
LENGTHS = {"sentences": (11, 0.84, 76), "pairs": (65, 0.27, 125), "words": (37, 0.42, 96)}
COLUMNS = {"sentences": ("text_a",), "pairs": ("text_a", "text_b"), "words": ("tokens",)}
LABELS = ("O", "B-person", "B-location", "B-group", "B-corporation", "B-product")

flags.DEFINE_list("data", list(LENGTHS), "Kinds of data: sentences, pairs, words.")
flags.DEFINE_string("data_dir", None, "GLUE, with the directories SST-2 and MRPC.")
flags.DEFINE_string("entities_dir", None, "Named entities: a directory with train.conll.")
flags.DEFINE_integer("num_examples", 6000, "Maximum number of examples.", lower_bound=1)
flags.DEFINE_string("model", "mini", "Pretrained model.")
flags.DEFINE_string("preset", None, "Shape of a model with random weights, instead of --model.")
flags.DEFINE_integer("batch_size", 32, "Examples per step.", lower_bound=1)
flags.DEFINE_integer("num_steps", 500, "Training steps of a job.", lower_bound=1)
flags.DEFINE_integer("max_seq_length", 128, "Maximum number of tokens.", lower_bound=8)
flags.DEFINE_integer("rounds", 3, "Number of jobs per library and kind of data.", lower_bound=1)
flags.DEFINE_list("peers", list(PEERS), "Libraries to compare with this package.")
flags.DEFINE_string("peer_python", sys.executable, "Interpreter that runs transformers.")
flags.DEFINE_string("baseline", None, "Clone of another version of this package.")
flags.DEFINE_list("job", None, "Library, kind of data, directory: the job of this process.")
flags.register_validator("data", lambda kinds: {*kinds} <= {*LENGTHS}, "Unknown kind of data.")
flags.register_validator("peers", lambda names: {*names} <= {*PEERS}, "Unknown library.")
FLAGS = flags.FLAGS

Row = dict[str, Any]
Job = Callable[[], object]
RATE = 1e-4


def random_rows(kind: str) -> list[Row]:
    """Returns examples of words that are single tokens of the vocabulary of `mini`."""
    path = ROOT / "albert_tf" / "pretrained" / "mini" / "tokenizer.json"
    pieces = [piece for piece, _ in json.loads(path.read_text("utf-8"))["model"]["vocab"]]
    vocabulary = [piece[1:] for piece in pieces if re.fullmatch("▁[a-z]{3,}", piece)]
    rng = np.random.default_rng(1)
    median, deviation, most = LENGTHS[kind]
    lengths = rng.lognormal(np.log(median), deviation, FLAGS.num_examples).round()
    rows: list[Row] = []
    for length in np.clip(lengths, 2, most).astype(int):
        words = rng.choice(vocabulary, length).tolist()
        if kind == "words":
            labels = rng.choice(LABELS, length, p=[0.95, *[0.01] * 5]).tolist()
            rows.append({"tokens": words, "label": labels})
            continue
        texts = map(" ".join, np.array_split(words, len(COLUMNS[kind])))
        row = dict(zip(COLUMNS[kind], texts, strict=True))
        rows.append({**row, "label": str(rng.integers(2))})
    return rows


def real_rows(kind: str) -> list[Row]:
    """Returns the first training examples of SST-2, MRPC or WNUT 2017."""
    from albert_tf.classification.data import GlueData
    from albert_tf.data.splits import TRAIN
    from albert_tf.token_classification.data import read_sentences

    if kind == "words":
        path = os.path.join(FLAGS.entities_dir, "train.conll")
        sentences = itertools.islice(read_sentences(path, needs_labels=True), FLAGS.num_examples)
        return [{"tokens": [*s.words], "label": [*(s.labels or ())]} for s in sentences]
    task = "MRPC" if kind == "pairs" else "SST-2"
    examples = GlueData(task, FLAGS.data_dir).read(TRAIN)[: FLAGS.num_examples]
    return [{name: getattr(e, name) for name in (*COLUMNS[kind], "label")} for e in examples]


def write_data(kind: str, folder: str) -> None:
    """Writes the examples of a kind as JSON Lines, and prints their number and lengths."""
    source = FLAGS.entities_dir if kind == "words" else FLAGS.data_dir
    rows = real_rows(kind) if source else random_rows(kind)
    with open(os.path.join(folder, f"{kind}.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    values = [[row[name] for name in COLUMNS[kind]] for row in rows]
    lengths = [len(v[0]) if kind == "words" else len(" ".join(v).split()) for v in values]
    print(
        f"{kind} ({source or 'random'}): {len(rows)} examples, {statistics.mean(lengths):.1f} words"
        f" on average, at most {max(lengths)}",
        flush=True,
    )


def write_model(path: str) -> None:
    """Writes the pretrained model in the format of transformers, which all libraries read."""
    import albert_tf

    model = albert_tf.load(FLAGS.model)
    if FLAGS.preset:
        tokenizer, vocab_size = model.tokenizer, model.config.vocab_size
        config = albert_tf.AlbertConfig.from_preset(FLAGS.preset).replace(vocab_size=vocab_size)
        model = albert_tf.AlbertForPretraining(config)
        model.set_origin(tokenizer, None)
    albert_tf.save(model, path, format="huggingface")


def albert_tf_job(kind: str, folder: str, output: str) -> Job:
    """Returns the job of the command `run_classifier` or `run_token_classifier`."""
    import albert_tf

    settings: dict[str, Any] = {
        "albert_hub_module_handle": os.path.join(folder, "model"),
        "train_file": os.path.join(folder, f"{kind}.jsonl"),
        "output_dir": output,
        "do_train": True,
        "recipe": "none",  # the default depends on the version
        "learning_rate": RATE,
        "max_seq_length": FLAGS.max_seq_length,
        "train_batch_size": FLAGS.batch_size,
        "train_step": FLAGS.num_steps,
        "save_checkpoints_steps": FLAGS.num_steps,
    }
    if kind == "words":
        run, values = albert_tf.run_token_classification, albert_tf.TokenClassificationSettings
    else:
        run, values = albert_tf.run_classification, albert_tf.ClassificationSettings
        settings |= {"task_name": "custom", "text_b_column": "text_b" if kind == "pairs" else None}
    return lambda: run(values(**settings))


def transformers_examples(kind: str, folder: str, tokenizer: Any) -> tuple[list[Row], int]:
    """Returns tokenized examples and the number of labels. First tokens of words have labels."""
    with open(os.path.join(folder, f"{kind}.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = [[row[name] for row in rows] for name in COLUMNS[kind]]
    length, is_words = FLAGS.max_seq_length, kind == "words"
    inputs = tokenizer(*texts, truncation=True, max_length=length, is_split_into_words=is_words)
    names = sorted({name for row in rows for name in np.atleast_1d(row["label"])})
    examples = []
    for i, row in enumerate(rows):
        labels: Any = np.searchsorted(names, row["label"]).tolist()
        if is_words:
            words = itertools.pairwise([None, *inputs.word_ids(i)])
            labels = [-100 if word in (None, last) else labels[word] for last, word in words]
        examples.append({**{name: ids[i] for name, ids in inputs.items()}, "labels": labels})
    return examples, len(names)


def transformers_job(kind: str, folder: str, output: str, strategy: str) -> Job:
    """Returns the same job with `Trainer`."""
    import torch
    from transformers import (
        AlbertForSequenceClassification,
        AlbertForTokenClassification,
        AutoTokenizer,
        DataCollatorForTokenClassification,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model_class, collator = AlbertForSequenceClassification, DataCollatorWithPadding
    if kind == "words":
        model_class, collator = AlbertForTokenClassification, DataCollatorForTokenClassification
    arguments = TrainingArguments(
        output,
        per_device_train_batch_size=FLAGS.batch_size,
        max_steps=FLAGS.num_steps,
        save_steps=FLAGS.num_steps,
        logging_steps=100,  # the default of this package
        learning_rate=RATE,
        train_sampling_strategy=strategy,
        dataloader_drop_last=True,  # all steps have the same number of examples
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )

    def run() -> None:
        path = os.path.join(folder, "model")
        tokenizer = AutoTokenizer.from_pretrained(path)
        examples, num_labels = transformers_examples(kind, folder, tokenizer)
        model = model_class.from_pretrained(path, num_labels=num_labels)
        collate = collator(tokenizer)
        Trainer(model, arguments, train_dataset=examples, data_collator=collate).train()

    return run


def run_job(library: str, kind: str, folder: str) -> None:
    """Runs a job in this process, and prints its wall time, its CPU time and the peak memory."""
    with tempfile.TemporaryDirectory() as output:
        if library in PEERS:
            job = transformers_job(kind, folder, output, PEERS[library])
        else:
            job = albert_tf_job(kind, folder, output)
        before = sum(os.times()[:4])
        wall = seconds(job)
        print(wall, sum(os.times()[:4]) - before, peak_memory())


def start_job(library: str, kind: str, folder: str) -> tuple[float, ...]:
    """Runs a job in a new process. Returns its values and the wall time of the process."""
    root, python = ROOT, sys.executable
    if library == BASELINE:
        root = Path(FLAGS.baseline).resolve()
        own_python = root / ".venv" / "bin" / "python"
        python = str(own_python) if own_python.exists() else python
    elif library in PEERS:
        python = FLAGS.peer_python
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if environment.get("TF_ENABLE_ONEDNN_OPTS") == "1":  # set by `import albert_tf`
        del environment["TF_ENABLE_ONEDNN_OPTS"]
    start = time.perf_counter()
    done = subprocess.run(
        [python, "-P", __file__, *sys.argv[1:], f"--job={library},{kind},{folder}"],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"The job of {library} failed:\n{done.stderr[-3000:]}")
    return (*map(float, done.stdout.split()[-3:]), time.perf_counter() - start)


def check_peers() -> None:
    """Ends the program if the packages of transformers are missing."""
    command = [FLAGS.peer_python, "-c", "import absl, accelerate, torch, transformers"]
    if subprocess.run(command, capture_output=True).returncode:
        sys.exit(
            f"{FLAGS.peer_python} lacks packages that transformers needs. Run `pip install "
            f"{PEER_PACKAGES}`, select another interpreter with --peer_python, or pass --peers=."
        )


def print_rows(kind: str, found: dict[str, list[tuple[float, ...]]]) -> None:
    """Prints the rows of a kind of data."""
    examples = FLAGS.batch_size * FLAGS.num_steps
    medians = {name: np.median(values, axis=0) for name, values in found.items()}
    for name, (wall, cpu, memory, process) in medians.items():
        rates = ", ".join(f"{examples / value[0]:.1f}" for value in found[name])
        own_wall, own_cpu, *_ = medians[OWN]
        print(
            f"| {kind} | {name} | {examples / wall:.1f} ({rates}) | {wall / own_wall:.2f} "
            f"| {cpu:.1f} | {cpu / own_cpu:.2f} | {process:.1f} | {memory:.1f} |",
            flush=True,
        )


def main(_: list[str]) -> None:
    """Runs all jobs and prints a table, or runs the job of --job."""
    if FLAGS.job:
        run_job(*FLAGS.job)
        return
    names = [OWN, *([BASELINE] if FLAGS.baseline else []), *FLAGS.peers]
    if FLAGS.peers:
        check_peers()
    with tempfile.TemporaryDirectory() as folder:
        write_model(os.path.join(folder, "model"))
        for kind in FLAGS.data:
            write_data(kind, folder)
        print("| data | library | examples/s | ratio | CPU s | ratio | process s | memory in GB |")
        print("|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
        for kind in FLAGS.data:
            found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
            for _ in range(FLAGS.rounds):
                for name in names:
                    found[name].append(start_job(name, kind, folder))
            print_rows(kind, found)


if __name__ == "__main__":
    app.run(main)
