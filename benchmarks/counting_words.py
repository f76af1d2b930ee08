"""Compares fine-tuned models with linear models that count words, on the same rows.

    python -m benchmarks.counting_words --data_dir=GLUE --pos_dir=GUM --entities_dir=WNUT17
    python -m benchmarks.counting_words --data_dir=GLUE --model=mini

Prints the main score on the development set: Matthews correlation for CoLA, Pearson's correlation
for STS-B, F1 of entities for named entities, otherwise accuracy. Without --model, a text is
described by its words and pairs of adjacent words; a pair of texts by what both share, by what only
one contains, and by the shared fraction; a word by itself, its first and last letters, its shape
and its neighbors. With --model, the model is fine-tuned with the defaults of `fit`, unless --epochs
or --learning_rates are given, and the score is measured after the last step. --num_examples selects
random training rows of GLUE tasks, another sample for each seed; 0 selects all.
"""

import itertools
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import app, flags
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.metrics import accuracy_score, matthews_corrcoef

import albert_tf
from albert_tf.classification.data import GlueData
from albert_tf.data.splits import DEV, TRAIN
from albert_tf.finetuning.texts import TextExample
from albert_tf.token_classification.data import read_sentences
from albert_tf.token_classification.labels import best_metric, recognize_scheme, scores

_DATA = flags.DEFINE_string("data_dir", None, "GLUE, with a directory for each task.")
_TASKS = flags.DEFINE_list("tasks", "SST-2,QQP,MRPC,CoLA,RTE,STS-B", "Tasks in --data_dir.")
_ROWS = flags.DEFINE_list("num_examples", "100,500,2000,0", "Training rows; 0 for all.")
_SEEDS = flags.DEFINE_integer("num_seeds", 3, "Number of random samples.", lower_bound=1)
_POS = flags.DEFINE_string("pos_dir", None, "Parts of speech: train.conll and dev.conll.")
_ENTITIES = flags.DEFINE_string("entities_dir", None, "Named entities: the same files.")
_MODEL = flags.DEFINE_string("model", None, "Model to fine-tune on GLUE tasks.")
_EPOCHS = flags.DEFINE_list("epochs", "default", "Passes over the training rows, to compare.")
_RATES = flags.DEFINE_list("learning_rates", "default", "Learning rates, to compare.")
_PRECISION = flags.DEFINE_enum("precision", "float32", ("float32", "bfloat16"), "Of the model.")


def counted(text: str) -> list[str]:
    """Returns the words and the pairs of adjacent words of a text."""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    return words + [" ".join(pair) for pair in itertools.pairwise(words)]


def text_features(example: TextExample) -> list[str]:
    """Returns the features of a text or a pair of texts."""
    if example.text_b is None:
        return counted(example.text_a)
    a, b = set(counted(example.text_a)), set(counted(example.text_b))
    share = round(10 * len(a & b) / max(1, len(a | b)))
    found = [f"both {word}" for word in a & b] + [f"one {word}" for word in a ^ b]
    return found + [f"share>={level}" for level in range(share + 1)]


def word_features(words: Sequence[str]) -> Iterator[list[str]]:
    """Yields the features of each word of a sentence."""
    padded = ["", "", *words, "", ""]
    for i, word in enumerate(words, 2):
        shape = re.sub(r"\d", "0", re.sub(r"[a-z]", "x", re.sub(r"[A-Z]", "X", word)))
        near = [f"{k} {padded[i + k].lower()}" for k in (-2, -1, 0, 1, 2)]
        ends = [f"end {word[-n:].lower()}" for n in (1, 2, 3, 4)]
        starts = [f"start {word[:n].lower()}" for n in (1, 2, 3)]
        edges = [f"next end {padded[i + 1][-3:]}", f"last end {padded[i - 1][-3:]}"]
        compact = re.sub(r"(.)\1+", r"\1", shape)
        yield [*near, *ends, *starts, *edges, f"shape {compact}", f"word {word}", f"first {i == 2}"]


def classify(
    train: Sequence[list[str]], labels: Sequence[Any], dev: Sequence[list[str]], kind: str
) -> Sequence[Any]:
    """Returns the labels of `dev`, predicted from lists of features of texts, pairs or words."""
    options = {"use_idf": False, "norm": None, "binary": True}
    model = LogisticRegression(max_iter=200)
    if kind == "text":
        options, model = {"sublinear_tf": True}, LogisticRegression(C=10, max_iter=200)
    elif kind == "word":  # the same loss; this optimizer is faster for many classes
        model = SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=10, tol=None, random_state=1)
    elif kind == "scored pair":
        model = Ridge()
    vectors = TfidfVectorizer(analyzer=lambda features: features, **options)
    return model.fit(vectors.fit_transform(train), labels).predict(vectors.transform(dev))


def pearson(true: Sequence[float], found: Sequence[float]) -> float:
    """Returns the correlation of two lists of numbers."""
    return float(np.corrcoef(true, found)[0, 1])


def score_texts(task: str, size: int, seed: int, epochs: str, rate: str) -> float:
    """Returns the main score of a GLUE task with `size` training rows."""
    data = GlueData(task, _DATA.value)
    train, dev = data.read(TRAIN), data.read(DEV)
    train = random.Random(seed).sample(train, size) if size else train
    has_pairs, has_scores = dev[0].text_b is not None, data.labels.is_regression
    true = [[float(row.label) if has_scores else row.label for row in r] for r in (train, dev)]
    if _MODEL.value is None:
        features = [[text_features(row) for row in rows] for rows in (train, dev)]
        kind = ("scored pair" if has_scores else "pair") if has_pairs else "text"
        found = classify(features[0], true[0], features[1], kind)
        score = {"matthew_corr": matthews_corrcoef, "pearson": pearson}
        return score.get(data.best_metric, accuracy_score)(true[1], found)
    texts = [[row.text_a for row in rows] for rows in (train, dev)]
    pairs = [[row.text_b for row in rows] if has_pairs else None for rows in (train, dev)]
    model = albert_tf.TextClassifier.load(
        _MODEL.value,
        labels=data.labels.names,
        max_seq_length=256 if task == "RTE" else 128,
        precision=_PRECISION.value,
    )
    chosen = {"epochs": epochs, "learning_rate": rate}
    settings = {name: float(value) for name, value in chosen.items() if value != "default"}
    settings |= {"seed": seed, "precision": _PRECISION.value}
    model.fit(texts[0], true[0], pairs[0], **settings)
    return model.evaluate(texts[1], true[1], pairs[1])[data.best_metric]


def score_words(folder: str) -> float:
    """Returns the accuracy of plain labels, or the F1 of entities."""
    names = [os.path.join(folder, f"{name}.conll") for name in ("train", "dev")]
    train, dev = (list(read_sentences(name, needs_labels=True)) for name in names)
    features = [[f for s in part for f in word_features(s.words)] for part in (train, dev)]
    labels = [label for sentence in train for label in sentence.labels or ()]
    found = iter(classify(features[0], labels, features[1], "word"))
    predicted = [[next(found) for _ in sentence.words] for sentence in dev]
    scheme = recognize_scheme(train)
    return scores([sentence.labels or () for sentence in dev], predicted, scheme)[
        best_metric(scheme)
    ]


def main(_: list[str]) -> None:
    """Prints a table with a row for each task, number of examples and setting."""
    print("| data | rows | epochs | learning rate | scores | mean | seconds |")
    print("|---|---:|---:|---:|---|---:|---:|")
    runs = []
    if _DATA.value:
        choices = (_EPOCHS.value, _RATES.value) if _MODEL.value else ("-", "-")
        settings = list(itertools.product(*choices))
        runs += [(n, t, s) for s in settings for n in map(int, _ROWS.value) for t in _TASKS.value]
    runs += [(0, name, None) for name in (_POS.value, _ENTITIES.value) if name]
    for size, name, setting in runs:
        start, found = time.time(), []
        for seed in range(1, 1 + (_SEEDS.value if size else 1)):
            score = score_texts(name, size, seed, *setting) if setting else score_words(name)
            found.append(100 * score)
        cells = [name, size or "all", *(setting or ("-",) * 2)]
        cells += [", ".join(f"{score:.1f}" for score in found), f"{sum(found) / len(found):.1f}"]
        cells.append(f"{(time.time() - start) / len(found):.1f}")
        print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    app.run(main)
