"""Scores of classification and regression, as defined by GLUE and reported by the original.

Except for `loss`, scores are computed over all examples at once, not per batch.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from absl import logging
from scipy import special, stats

from albert_tf.labels import LABEL_SEPARATOR, Labels, label_cell

_FEWEST = 10  # fewer predictions can be the same by chance
_NEARLY_ALL = 0.98  # share of a true value that a model may always predict
_FEW = 0.1  # how often rarer values are predicted at least, relative to how often they occur
F1_OF_CLASSES, RMSE_OF_MEAN = "f1_of_classes", "RMSE_of_mean"
_Score = Callable[[np.ndarray, np.ndarray], float]


def predictions(logits: np.ndarray, labels: Labels) -> np.ndarray:
    """Returns predicted class ids, int32 [N], or numbers, float32 [N], from logits [N, K].

    For multi-label models: int32 [N, K], 1 for predicted labels.
    """
    if labels.multi_label:
        return (probabilities(logits, labels) >= np.float32(labels.threshold)).astype(np.int32)
    if labels.is_regression:
        return logits[:, 0].astype(np.float32)
    return logits.argmax(axis=1).astype(np.int32)


def label_text(predicted: np.ndarray, labels: Labels) -> str:
    """Formats the prediction for one example, an element or row of `predictions`, as text."""
    if labels.multi_label:
        return LABEL_SEPARATOR.join(labels.names[i] for i in np.flatnonzero(predicted))
    return labels.names[predicted]


def probabilities(logits: np.ndarray, labels: Labels) -> np.ndarray:
    """Returns probabilities of the classes, float32 [N, K]; for a regression the logits [N, K].

    Source: classifier_utils.py of the original release, create_model.
    """
    if labels.is_regression:
        return logits.astype(np.float32)
    wide = logits.astype(np.float64)
    values = special.expit(wide) if labels.multi_label else special.softmax(wide, axis=1)
    return values.astype(np.float32)


def per_example_losses(logits: np.ndarray, label_ids: np.ndarray, labels: Labels) -> np.ndarray:
    """Returns the loss of each example, float32 [N]; for arguments see `scores`.

    The loss is the cross entropy; for a regression the squared error; for multi-label models the
    mean binary cross entropy.
    """
    wide = logits.astype(np.float64)
    if labels.is_regression:
        losses = np.square(wide[:, 0] - label_ids)
    elif labels.multi_label:
        losses = (np.logaddexp(0.0, wide) - wide * label_ids).mean(axis=1)
    else:
        losses = -special.log_softmax(wide, axis=1)[np.arange(len(wide)), label_ids]
    return losses.astype(np.float32)


def batch_mean_loss(losses: np.ndarray, batch_size: int) -> float:
    """Averages losses [N], in the order of the file, over each batch, then over the batches."""
    batches = np.split(losses, range(batch_size, len(losses), batch_size))
    return float(np.mean([batch.mean(dtype=np.float64) for batch in batches]))


def scores(
    logits: np.ndarray,
    label_ids: np.ndarray,
    data_metrics: Sequence[str],
    labels: Labels,
    batch_size: int | None = None,
) -> dict[str, float]:
    """Scores a model.

    Args:
        logits: float [N, K], N >= 1.
        label_ids: labels, as returned by `Labels.encode`.
        data_metrics: names of further scores. For classes: "f1" (of class 1), "f1_of_classes" (of
            every class), "f1_macro" (mean over the classes that occur) and "matthews". For numbers:
            "pearson", "spearman", "R2" (the explained share of the variance), "RMSE", and
            "RMSE_of_mean", the RMSE of always answering the mean of the labels. For multi-label
            models: "f1_micro" and "f1_macro" (over all classes; 0 for a class that neither occurs
            nor is predicted) and "f1_of_classes".
        labels: labels of the model.
        batch_size: batch size for the score `loss`. If `None`, it is not computed.

    Returns:
        `eval_accuracy` or `MSE`; `eval_loss`; `loss`, see `batch_mean_loss`; the further scores,
        "matthews" as `matthew_corr`. Accuracy of multi-label models is the share of texts whose
        labels are all correct. F1 without positives and Matthews with a single class are 0.
        Correlations with a constant, and R2 of constant labels, are NaN.
    """
    predicted = predictions(logits, labels)
    wanted = _wanted(data_metrics, labels)
    with warnings.catch_warnings():
        # `scores` defines the results of constant values.
        warnings.filterwarnings("ignore", category=stats.ConstantInputWarning)
        warnings.filterwarnings("ignore", category=stats.NearConstantInputWarning)
        warnings.filterwarnings("ignore", "A single label was found", UserWarning)
        values = {key: float(score(label_ids, predicted)) for key, score in wanted.items()}
    losses = per_example_losses(logits, label_ids, labels)
    values["eval_loss"] = float(losses.mean(dtype=np.float64))
    if batch_size is not None:
        values["loss"] = batch_mean_loss(losses, batch_size)
    return values


def warn_of_constant(predicted: Any, true: Any, labels: Labels) -> None:
    """Logs a warning if nearly all predictions are the same, but not nearly all true values.

    `predicted` are texts or numbers [N], or the results of `metrics.predictions`; `true` are the
    true values [N, ...]. `labels` may be empty.
    """
    predicted, true = np.asarray(predicted), np.asarray(true)
    if len(predicted) < _FEWEST:
        return
    is_same, is_usual = (_is_most_frequent(values, true) for values in (predicted, true))
    share, usual = is_same.mean(), is_usual.mean()
    if usual < _NEARLY_ALL and 1 - share <= _FEW * (1 - usual):
        value = predicted[is_same][0]
        logging.warning(
            "%.3g%% of %d predictions are %r, but only %.3g%% of the true values are the same. Try "
            "more steps, another `learning_rate` or another `seed`%s",
            100 * share,
            len(predicted),
            label_text(value, labels) if labels.names else str(value),
            100 * usual,
            ", or `class_weights`=balanced if a label is rare" if labels.names else "",
        )


def _is_most_frequent(values: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Returns whether each value [N, ...] is the most frequent one; for numbers, the median."""
    if values.dtype.kind == "f":
        return np.abs(values - np.quantile(values, 0.5, method="lower")) < 0.01 * np.ptp(true)
    _, ids, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    return ids.reshape(-1) == counts.argmax()


def _wanted(data_metrics: Sequence[str], labels: Labels) -> dict[str, _Score]:
    """Returns the functions of all scores except losses, by key in the results."""
    wanted: dict[str, _Score] = {"eval_accuracy": _sklearn("accuracy_score")}
    if labels.is_regression:
        wanted = {"MSE": _sklearn("mean_squared_error")}
    for name in data_metrics:
        if name == F1_OF_CLASSES:
            wanted |= {f"f1_{label_cell(c)}": partial(_f1, i) for i, c in enumerate(labels.names)}
        else:
            wanted[_KEYS.get(name, name)] = _SCORES[name]
    return wanted


def score_names(data_metrics: Sequence[str], labels: Labels) -> list[str]:
    """Returns the keys of `scores` that can select a checkpoint; see there for the arguments."""
    return [*(name for name in _wanted(data_metrics, labels) if name != RMSE_OF_MEAN), "eval_loss"]


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Returns scores rounded to float32, as in the original."""
    return {name: float(np.float32(value)) for name, value in values.items()}


def confusion_matrix(predicted: np.ndarray, label_ids: np.ndarray, num_labels: int) -> np.ndarray:
    """Returns counts, int [K, K]: rows are true classes, columns predicted classes, int [N]."""
    return _sklearn("confusion_matrix", labels=np.arange(num_labels))(label_ids, predicted)


def _sklearn(name: str, **options: Any) -> Callable[..., Any]:
    """Returns a function of `sklearn.metrics`, which is slow to import, with some arguments."""

    def score(label_ids: np.ndarray, predicted: np.ndarray) -> Any:
        from sklearn import metrics

        return getattr(metrics, name)(label_ids, predicted, **options)

    return score


def _correlation(measure: Callable[..., tuple[float, float]]) -> _Score:
    def score(label_ids: np.ndarray, predicted: np.ndarray) -> float:
        if len(label_ids) < 2:
            return math.nan
        return measure(label_ids.astype(np.float64), predicted.astype(np.float64))[0]

    return score


def _f1(class_id: int, label_ids: np.ndarray, predicted: np.ndarray) -> float:
    if label_ids.ndim == 2:  # multi-label
        chosen = label_ids[:, class_id] == 1, predicted[:, class_id] == 1
    else:
        chosen = label_ids == class_id, predicted == class_id
    return float(_sklearn("f1_score", zero_division=0.0)(*chosen))


def _rmse(label_ids: np.ndarray, predicted: Any) -> float:
    return float(np.sqrt(np.square(label_ids.astype(np.float64) - predicted).mean()))


def _rmse_of_mean(label_ids: np.ndarray, _: np.ndarray | None = None) -> float:
    return _rmse(label_ids, label_ids.mean(dtype=np.float64)) if np.ptp(label_ids) else 0.0


def _r2(label_ids: np.ndarray, predicted: np.ndarray) -> float:
    error = _rmse_of_mean(label_ids)
    return 1.0 - (_rmse(label_ids, predicted) / error) ** 2 if error else math.nan


_SCORES: dict[str, _Score] = {
    "f1": partial(_f1, 1),
    "f1_macro": _sklearn("f1_score", average="macro", zero_division=0.0),
    "f1_micro": _sklearn("f1_score", average="micro", zero_division=0.0),
    "matthews": _sklearn("matthews_corrcoef"),
    "pearson": _correlation(stats.pearsonr),
    "spearman": _correlation(stats.spearmanr),
    "R2": _r2,
    "RMSE": _rmse,
    RMSE_OF_MEAN: _rmse_of_mean,
}
_KEYS = {"matthews": "matthew_corr"}
