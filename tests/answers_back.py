"""Reference answers, converted to the tokens of training and back."""

from dataclasses import replace

from albert_tf.squad.data import SquadData
from albert_tf.squad.features import squad_features


def answers_through_tokens(data, tokenizer):
    """Yields each reference answer and the text of its tokens."""
    asked = [
        replace(question, question="", answers=(answer,), is_impossible=False)
        for question in data.questions
        for answer in question.answers
    ]
    features = squad_features(
        SquadData(data.contexts, asked, data.path),
        tokenizer,
        max_seq_length=10_000,  # a window holds its whole context
        doc_stride=1,
        max_query_length=1,
        is_training=True,
    )
    assert len(features) == len(asked)
    for row, question in enumerate(asked):
        base = features.paragraph_offsets[question.paragraph] - features.first_context_position[row]
        begin = features.token_starts[base + features.start_positions[row]]
        end = features.token_ends[base + features.end_positions[row]]
        yield question.answers[0][0], data.contexts[question.paragraph][begin : end + 1]
