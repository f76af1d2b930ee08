"""The requests that warm up exports of all tasks, answered by a loaded SavedModel.

TensorFlow Serving rejects a model if one of these requests fails.
"""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.export import export_text_classifier
from albert_tf.labels import Labels
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
)
from albert_tf.multiple_choice.export import export_text_choice
from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.export import export_text_spans
from albert_tf.token_classification.export import export_text_token_classifier
from tests.serving import warmup_inputs
from tests.text_models import CONFIG

pytestmark = pytest.mark.slow

LENGTH = 17
LABELS = Labels(("O", "B-PER", "I-PER"))
INPUTS = {
    "pairs": {"texts_a", "texts_b"},
    "words": {"texts"},
    "answers": {"questions", "contexts"},
    "choice": {"contexts", "questions", "options"},
}


def export(kind, tokenizer, folder) -> str:
    random.seed(3)
    if kind == "pairs":
        model = AlbertForClassification(CONFIG, 3)
        return export_text_classifier(model, LABELS, tokenizer, folder, LENGTH, True, 0.7)
    if kind == "words":
        model = AlbertForTokenClassification(CONFIG, labels=list(LABELS.names))
        return export_text_token_classifier(model, LABELS, tokenizer, folder, LENGTH)
    if kind == "answers":
        settings = AnswerSettings(1, LENGTH, doc_stride=5, max_query_length=7)
        return export_text_spans(AlbertForQuestionAnswering(CONFIG), tokenizer, settings, folder)
    return export_text_choice(AlbertForMultipleChoice(CONFIG), tokenizer, folder, LENGTH, 9)


@pytest.mark.parametrize("kind", INPUTS)
def test_models_answer_the_requests(kind, tokenizer, tmp_path):
    path = export(kind, tokenizer, str(tmp_path))
    model = tf.saved_model.load(path)
    sizes = []
    for inputs in warmup_inputs(path):
        assert inputs.keys() == INPUTS[kind]
        tensors = {name: tf.constant(values) for name, values in inputs.items()}
        outputs = model.signatures["serving_default"](**tensors)
        sizes.append({len(values) for values in (*inputs.values(), *outputs.values())})
    assert sizes == [{1}, {1}, {4}]
    if kind == "pairs":
        np.testing.assert_allclose(outputs["threshold"], [0.7] * 4, rtol=1e-6)
        tensors["texts_b"] = tensors["texts_b"][:1]
        with pytest.raises(tf.errors.InvalidArgumentError, match="as many texts_b as texts_a"):
            model.signatures["serving_default"](**tensors)
