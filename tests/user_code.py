"""Code of users, for the type checker: public signatures and results are typed."""

from collections.abc import Mapping
from typing import Any, assert_type

import numpy as np

import albert_tf


def tokenize() -> None:
    tokenizer = albert_tf.load_tokenizer("mini")
    assert_type(tokenizer(["a"], ["b"], max_length=8), dict[str, np.ndarray])
    tokenizer(["a"], max_length="8")  # type: ignore[arg-type]


def load_and_save() -> None:
    model = albert_tf.AlbertForClassification.load("mini", labels=["no", "yes"])
    assert_type(model, albert_tf.AlbertForClassification)
    assert_type(albert_tf.AlbertEncoder.load("mini"), albert_tf.AlbertEncoder)
    albert_tf.save(model, "kept", max_seq_length=64)
    albert_tf.save(model, 3)  # type: ignore[arg-type]


def predict() -> None:
    model = albert_tf.AlbertForClassification.load("mini", ["no", "yes"])
    for prediction in albert_tf.TextClassifier(model)(["a"], ["b"]):
        assert_type(prediction.probabilities, dict[str, float])
    assert_type(albert_tf.TextEncoder.load("mini", pooling="pooled")(["a"]), np.ndarray)
    answers = albert_tf.QuestionAnswerer.load("squad")(["Who?"], contexts=["She did."])
    assert_type(answers[0].start, int | None)
    choices = albert_tf.MultipleChoice.load("race")(["q"], contexts=["c"], options=[["a", "b"]])
    assert_type(choices[0].probabilities, list[float])
    blanks = albert_tf.FillMask.load("mini")(["[MASK]"], top_k=2)
    assert_type(blanks[0][0][0].token, str)
    albert_tf.TextEncoder.load("mini", pooling="max")  # type: ignore[arg-type]


def run() -> None:
    def on_log(record: Mapping[str, Any]) -> None:
        print(record["step"])

    settings = albert_tf.ClassificationSettings(output_dir="out", do_eval=True, max_seq_length=64)
    result = albert_tf.run_classification(settings, on_log=on_log)
    assert_type(result, albert_tf.JobResult)
    assert_type(result.scores, dict[str, float])
    assert_type(result.best_checkpoint, str | None)
    albert_tf.ClassificationSettings(output_dir="out", do_eval="yes")  # type: ignore[arg-type]
    albert_tf.run_squad(settings)  # type: ignore[arg-type]
