"""What a fine-tuning is going to read and write: said before it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from albert_tf.best_trial import BEST_FILE
from albert_tf.checkpoints.training_directory import BEST, CHECKPOINT, TRAIN_STATE
from albert_tf.data.choice_features import ChoiceFeatures
from albert_tf.data.choices import LETTERS
from albert_tf.data.label_report import label_text
from albert_tf.data.squad import SquadData
from albert_tf.data.squad_features import SquadFeatures, hidden_answers
from albert_tf.data.text_examples import Labels, TextExample
from albert_tf.data.text_features import encode_labels, text_lengths
from albert_tf.evaluation import RESULTS_FILE
from albert_tf.metrics.squad import has_references
from albert_tf.model_files.trained_task import LABELS_FILE
from albert_tf.run_log import CURVES_FILE, METRICS_FILE, RUN_CONFIG_FILE, TENSORBOARD_FOLDER
from albert_tf.text_layout import Block
from albert_tf.tokenization import Tokenizer

_MOST_TOKENIZED = 200_000  # rows that take some seconds; of more, a sample shows as much
_SAMPLE = 50_000


def length_rows(lengths: np.ndarray) -> Block:
    """Median, 95th percentile and maximum of the tokens of N sequences."""
    if not len(lengths):
        return {}
    median, most = np.percentile(lengths, [50, 95], method="lower").tolist()
    return {
        "tokens": f"median {median:,}, 95 % at most {most:,}, longest {int(lengths.max()):,}",
    }


def share_text(count: int, total: int) -> str:
    """A number and what share of all it is."""
    return f"{count:,} of {total:,}" + (f" ({count / total:.1%})" if total else "")


def text_block(
    path: str,
    examples: Sequence[TextExample],
    labels: Labels,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> Block:
    """What a file of texts holds.

    Args:
        path: the file.
        examples: its rows.
        labels: what is predicted.
        tokenizer: of the model.
        max_seq_length: what sequences are cut to.

    Raises:
        ValueError: see `encode_labels`.
    """
    encode_labels(examples, labels)
    counted, what = examples, "all rows"
    if len(examples) > _MOST_TOKENIZED:
        places = np.linspace(0, len(examples) - 1, _SAMPLE).astype(int)
        counted = [examples[place] for place in places]
        what = f"a sample of {_SAMPLE:,} rows"
    lengths = text_lengths(counted, tokenizer)
    cut = int((lengths > max_seq_length).sum())
    return {
        "file": path,
        "examples": len(examples),
        "labels": _labels(examples, labels),
        **length_rows(lengths),
        f"cut at {max_seq_length} tokens": share_text(cut, len(counted)),
        "tokens counted in": what,
    }


def _labels(examples: Sequence[TextExample], labels: Labels) -> str:
    text = label_text(examples, labels)
    return text.removeprefix("labels ") if text.startswith("labels ") else "none"


def squad_block(
    data: SquadData, features: SquadFeatures, version: int, num_cut_questions: int
) -> Block:
    """What a file of questions holds.

    Args:
        data: the questions.
        features: their windows.
        version: 1 or 2, of SQuAD.
        num_cut_questions: those longer than --max_query_length.
    """
    number = len(data.questions)
    windows = np.bincount(features.question_indices, minlength=number)
    block: Block = {
        "file": data.path,
        "questions": number,
        "contexts": len(data.contexts),
        "windows": len(features),
        "windows of a question": f"median {int(np.median(windows))}, most {int(windows.max())}",
        **length_rows(features.sequences.lengths),
        "questions left out": "none",
        "questions cut off": share_text(num_cut_questions, number),
    }
    if features.is_impossible is None:
        answered = "there, they score" if has_references(data.questions, version) else "not there"
        return {**block, "answers": answered}
    impossible = sum(question.is_impossible for question in data.questions)
    hidden = hidden_answers(data, features.question_indices, features.is_impossible)
    return {
        **block,
        "questions without an answer": share_text(impossible, number),
        "answers whole in no window": share_text(len(hidden), number - impossible),
        "windows with an answer": share_text(int((~features.is_impossible).sum()), len(features)),
    }


def choice_block(path: str, features: ChoiceFeatures) -> Block:
    """What a set of questions with options holds.

    Args:
        path: the file or folder.
        features: of the questions.
    """
    counts, lengths = features.choice_counts, features.sequences.lengths
    options = int(counts.sum())
    levels = Counter(filter(None, features.levels))
    labels: Block = {"labels": "none"}
    if features.label_ids is not None:
        found = Counter(features.label_ids.tolist())
        labels["labels"] = ", ".join(
            f"{LETTERS[label]}: {count} ({count / len(features):.1%})"
            for label, count in sorted(found.items())
        )
    return {
        "file": path,
        "questions": len(features),
        **({"levels": ", ".join(f"{k}: {n:,}" for k, n in levels.items())} if levels else {}),
        "options": f"{options:,}, {_range(counts)} of a question",
        **labels,
        **length_rows(lengths[lengths > 0]),
        "contexts cut": share_text(features.cut_contexts, options),
        "questions or options cut": share_text(features.cut_endings, options),
    }


def _range(counts: np.ndarray) -> str:
    least, most = int(counts.min()), int(counts.max())
    return f"{least}" if least == most else f"{least} to {most}"


def training_files(is_evaluated: bool) -> list[str]:
    """Returns the names of what a training leaves beside the model's files.

    Args:
        is_evaluated: whether its checkpoints are evaluated, and the best one kept.
    """
    names = [
        LABELS_FILE,
        RUN_CONFIG_FILE,
        METRICS_FILE,
        CURVES_FILE,
        f"{TENSORBOARD_FOLDER}/",
        "checkpoint",
        f"{CHECKPOINT}-<step>.*",
        f"{TRAIN_STATE}/",
    ]
    return [*names, *(evaluation_files(keeps_best=True) if is_evaluated else [])]


def evaluation_files(*, keeps_best: bool) -> list[str]:
    """Returns the names of what evaluating checkpoints leaves.

    Args:
        keeps_best: whether the best one is kept.
    """
    return [RESULTS_FILE, *([BEST_FILE, f"{BEST}.*"] if keeps_best else [])]
