"""Classification and regression of texts with scikit-learn: cross-validation, search, pipelines.

TensorFlow is imported when an estimator is fitted or predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from albert_tf.data.errors import UserError

if TYPE_CHECKING:
    from albert_tf.classification.text_classifier import TextClassifier


class _TextEstimator(BaseEstimator):
    """Trains a `TextClassifier`; see `AlbertClassifier`."""

    text_classifier_: TextClassifier

    def __init__(
        self,
        model: str = "mini",
        *,
        epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int = 32,
        max_seq_length: int | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        settings: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_seq_length = max_seq_length
        self.class_weight = class_weight
        self.settings = settings
        self.warm_start = warm_start
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def _fit(
        self, X: Any, labels: Any, names: Sequence[str], multi_label: bool = False, **settings: Any
    ) -> Self:
        """Trains on texts and labels. `names` are the classes, empty for a regression."""
        from albert_tf.classification.text_classifier import TextClassifier

        texts, pairs = _columns(X)
        trained = getattr(self, "text_classifier_", None) if self.warm_start else None
        continues = trained is not None
        if trained is None:
            trained = TextClassifier.load(
                self.model,
                labels=names,
                multi_label=multi_label,
                new_head=True,
                max_seq_length=self.max_seq_length,
            )
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        more: dict[str, Any] = {"verbose": False, "seed": int(seed) % 2**31}
        more |= {**settings, **(self.settings or {})}
        if "output_dir" in more:
            raise UserError("`settings` must not contain output_dir, which every fit would resume.")
        trained.fit(
            texts,
            labels,
            pairs,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warm_start=continues,
            **more,
        )
        self.text_classifier_ = trained
        return self

    def _predict(self, X: Any) -> list[Any]:
        check_is_fitted(self)
        return self.text_classifier_(*_columns(X))


class AlbertClassifier(ClassifierMixin, _TextEstimator):
    """Classifies texts or pairs of texts. Every `fit` starts from `model` with a new head.

    Args:
        model: a model of any format; see `albert_tf.load`.
        epochs: see `TextClassifier.fit`.
        learning_rate: see `TextClassifier.fit`.
        batch_size: number of texts per step.
        max_seq_length: number of tokens to which texts are truncated; see `TextClassifier`.
        class_weight: "balanced", or a dictionary of weights by class, as in scikit-learn.
        settings: further settings of `TextClassifier.fit`, such as `{"freeze": "encoder"}`.
        warm_start: whether `fit` continues from the weights of the previous `fit`.
        random_state: seed of the new head, of dropout and of the order of the texts. `None` uses
            NumPy's random state.

    Attributes:
        text_classifier_: the trained `TextClassifier`, which can be saved.
        classes_: the K classes, sorted; for several labels per text, the numbers of the columns.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Trains a new model.

        Args:
            X: N texts: a list, an array or a column. For pairs, an array [N, 2] or a table of
                pandas.
            y: N classes of any type, or an array [N, K] of 0 and 1 for several labels per text.

        Raises:
            ValueError: X does not contain texts, y contains fewer than two classes or missing
                values, or a parameter is invalid.
        """
        check_classification_targets(y)
        has_several = type_of_target(y) == "multilabel-indicator"
        if has_several:
            labels: Any = np.asarray(y.toarray() if hasattr(y, "toarray") else y).astype(int)
            classes = np.arange(labels.shape[1])
        else:
            y = column_or_1d(y, warn=True)
            if any(label is None or label != label for label in y):
                raise UserError("Input y contains NaN or None.")
            classes, ids = np.unique(y, return_inverse=True)
            labels = [str(classes[i]) for i in ids]
        names = [str(label) for label in classes]
        if len(names) < 2:
            raise UserError(f"y must contain at least two classes. Received one class: {names}")
        before = getattr(self, "classes_", classes), getattr(self, "_has_several", has_several)
        is_same = np.array_equal(before[0], classes) and before[1] == has_several
        if self.warm_start and not is_same:
            raise UserError("With warm_start=True, y must contain the classes of the previous fit.")
        weights = self.class_weight
        if isinstance(weights, Mapping):
            named = [*zip(classes, names, strict=True)]  # 1, 1.0 and True are the same class
            weights = {
                next((name for label, name in named if label == key), str(key)): weight
                for key, weight in weights.items()
            }
        self._fit(X, labels, names, multi_label=has_several, class_weights=weights)
        self.classes_, self._has_several = classes, has_several
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probabilities of the classes of N texts, float64 [N, K]."""
        shares = np.array([[*one.probabilities.values()] for one in self._predict(X)])
        # Metrics require that the sums are 1 in the precision of float64.
        return shares if self._has_several else shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Returns the classes of N texts, [N]; for several labels per text, 0 or 1, int [N, K]."""
        probabilities = self.predict_proba(X)
        if self._has_several:
            return (probabilities >= 0.5).astype(int)
        return self.classes_[probabilities.argmax(axis=1)]


class AlbertRegressor(RegressorMixin, _TextEstimator):
    """Predicts a number for texts or pairs of texts.

    For the arguments see `AlbertClassifier`. `class_weight` is not supported.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Trains a new model on N texts or pairs X, as in `AlbertClassifier`, and N numbers y."""
        return self._fit(X, column_or_1d(y, warn=True), [], class_weights=self.class_weight)

    def predict(self, X: Any) -> np.ndarray:
        """Returns the numbers of N texts, float64 [N]."""
        return np.array([one.value for one in self._predict(X)])


def _columns(X: Any) -> tuple[Any, Any]:
    """Returns N texts, and the second texts of pairs or `None`."""
    if isinstance(X, str):
        raise TypeError(f"X must be a list of texts. Received: {X!r}")
    has_rows = isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple | np.ndarray)
    if not has_rows and getattr(X, "ndim", 1) != 2:
        return X, None
    values = np.asarray(X, dtype=object)
    if values.ndim != 2 or values.shape[1] not in (1, 2):
        raise UserError(f"X must be texts or pairs of texts. Received: shape {values.shape}")
    return values[:, 0], (values[:, 1] if values.shape[1] == 2 else None)
