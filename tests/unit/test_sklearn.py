"""The estimators in scikit-learn: its checks, cross-validation, search, calibration, pickle."""

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    permutation_test_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator

import albert_tf
from albert_tf.sklearn import AlbertClassifier, AlbertRegressor
from tests.usual import usual

pytestmark = pytest.mark.usefixtures("eager")

TEXTS = ["a moving film", "a waste of two hours", "warm and funny", "dull from start to end"] * 3
CLASSES = np.array([1, 0, 1, 0] * 3)


@pytest.fixture(scope="module")
def classifier(small_pretrained):
    return AlbertClassifier(
        small_pretrained, epochs=1, batch_size=7, max_seq_length=16, random_state=3
    )


@pytest.fixture(scope="module")
def fitted(classifier):
    return clone(classifier).fit(TEXTS, CLASSES)


def test_the_estimator_equals_the_class(small_pretrained, fitted):
    kind = albert_tf.TextClassifier
    other = kind.load(small_pretrained, labels=["0", "1"], max_seq_length=16)
    other.fit(TEXTS, map(str, CLASSES), epochs=1, batch_size=7, seed=3, verbose=False)
    expected = [list(one.probabilities.values()) for one in other(TEXTS)]
    found = fitted.predict_proba(TEXTS)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(fitted.predict(TEXTS), found.argmax(axis=1))
    with pytest.raises(TypeError, match="list of texts"):
        fitted.predict("a text")
    assert fitted.score(TEXTS, CLASSES) == np.mean(found.argmax(axis=1) == CLASSES)


def test_every_fit_starts_again(classifier, fitted):
    expected = fitted.predict_proba(TEXTS)
    again = clone(classifier)
    for labels in (1 - CLASSES, CLASSES):
        found = again.fit(TEXTS, labels).predict_proba(TEXTS)
        assert np.array_equal(found, expected) == (labels is CLASSES)
    warm = again.set_params(warm_start=True).fit(TEXTS, CLASSES).predict_proba(TEXTS)
    assert not np.array_equal(warm, expected)
    several = np.stack([CLASSES, CLASSES], axis=1)
    for others in (CLASSES + 1, several):
        with pytest.raises(ValueError, match="warm_start"):
            again.fit(TEXTS, others)
    others = clone(classifier).set_params(random_state=4).fit(TEXTS, CLASSES)
    assert not np.array_equal(others.predict_proba(TEXTS), expected)


@pytest.mark.slow
def test_the_global_random_state_is_used_without_a_seed(classifier):
    found = []
    for seed in (5, 5, 6):
        np.random.seed(seed)
        one = clone(classifier).set_params(random_state=None).fit(TEXTS, CLASSES)
        found.append(one.predict_proba(TEXTS[:1]).tolist())
    assert found[0] == found[1] != found[2]


CLASS_TYPES = {
    "bool": CLASSES.astype(bool),
    "str": np.array(["b", "a"])[CLASSES],
    "float": CLASSES * 2.0 - 1,
    "category": pandas.Series(np.array(["no", "yes"])[CLASSES], dtype="category"),
    "three": np.array([7, -1, 3] * 4),
}


@pytest.mark.parametrize(
    "y",
    usual(CLASS_TYPES, "bool", "category"),
)
def test_classes_of_any_type(classifier, y):
    y = CLASS_TYPES[y]
    fitted = clone(classifier).fit(pandas.Series(TEXTS), y)
    np.testing.assert_array_equal(fitted.classes_, np.unique(y))
    predicted = fitted.predict(np.array(TEXTS))
    assert predicted.dtype == fitted.classes_.dtype
    assert {*predicted.tolist()} <= {*np.asarray(y).tolist()}
    assert fitted.predict_proba(TEXTS).shape == (len(TEXTS), len(fitted.classes_))


def test_several_labels_per_text(classifier):
    y = MultiLabelBinarizer().fit_transform([("a", "b"), ("b",), (), ("c",)] * 3)
    fitted = clone(classifier).fit(TEXTS, y)
    found = fitted.predict(TEXTS)
    np.testing.assert_array_equal(found, fitted.predict_proba(TEXTS) >= 0.5)
    assert found.shape == y.shape
    assert pickle.loads(pickle.dumps(fitted)).predict(TEXTS).tolist() == found.tolist()


@pytest.mark.slow
def test_sparse_indicators(classifier):
    y = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]] * 4)
    dense, sparse = (
        clone(classifier).fit(TEXTS, k(y)) for k in (np.array, scipy.sparse.csr_matrix)
    )
    np.testing.assert_array_equal(sparse.predict_proba(TEXTS), dense.predict_proba(TEXTS))


def test_pairs_of_texts(classifier):
    seconds = TEXTS[::-1]
    columns = pandas.DataFrame({"first": TEXTS, "second": seconds})
    fitted = clone(classifier).fit(columns, CLASSES)
    assert fitted.text_classifier_.pairs is True
    expected = fitted.predict_proba(columns)
    for rows in (columns.to_numpy(), list(zip(TEXTS, seconds, strict=True))):
        np.testing.assert_array_equal(fitted.predict_proba(rows), expected)
    single = clone(classifier).fit(columns[["first"]], CLASSES)
    assert single.text_classifier_.pairs is False


def test_regression(classifier):
    number = AlbertRegressor(**classifier.get_params())
    y = 1000.0 + 100 * CLASSES
    fitted = number.fit(TEXTS, y)
    found = fitted.predict(TEXTS)
    assert found.shape == y.shape
    assert 900 < found.mean() < 1200  # in the unit of y
    assert fitted.score(TEXTS, y) < 1


@pytest.mark.slow
def test_class_weights(classifier, fitted):
    expected = fitted.predict_proba(TEXTS)
    weighted = clone(classifier).set_params(class_weight={0: 9.0})
    found = weighted.fit(TEXTS, CLASSES).predict_proba(TEXTS)
    assert np.all(found[:, 0] > expected[:, 0])
    as_floats = weighted.fit(TEXTS, CLASSES.astype(float)).predict_proba(TEXTS)
    np.testing.assert_array_equal(as_floats, found)
    for wrong in ([1, 9], {"maybe": 1.0}):
        with pytest.raises(ValueError, match="class_weights"):
            clone(classifier).set_params(class_weight=wrong).fit(TEXTS, CLASSES)
    balanced = clone(classifier).set_params(class_weight="balanced")
    np.testing.assert_array_equal(balanced.fit(TEXTS, CLASSES).predict_proba(TEXTS), expected)


def test_further_settings(classifier):
    frozen = clone(classifier).set_params(settings={"freeze": "encoder"}).fit(TEXTS, CLASSES)
    start = albert_tf.AlbertEncoder.load(classifier.model)
    np.testing.assert_array_equal(
        frozen.text_classifier_.model.encoder.weights[0], start.weights[0]
    )
    for settings in ({"output_dir": "run"}, {"max_seq_length": 24}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            clone(classifier).set_params(settings=settings).fit(TEXTS, CLASSES)


def test_cross_validation_and_pipelines(classifier):
    found = cross_val_predict(classifier, TEXTS, CLASSES, cv=2, method="predict_proba")
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-6)
    upper = FunctionTransformer(lambda texts: [text.upper() for text in texts])
    pipeline = make_pipeline(upper, classifier).fit(TEXTS, CLASSES)
    assert pipeline.predict(TEXTS[:3]).shape == (3,)


@pytest.mark.slow
def test_search_and_calibration(classifier):
    search = GridSearchCV(classifier, {"learning_rate": [1e-4, 1e-3]}, cv=2).fit(TEXTS, CLASSES)
    assert search.best_params_["learning_rate"] in (1e-4, 1e-3)
    calibrated = CalibratedClassifierCV(classifier, cv=2).fit(TEXTS, CLASSES)
    assert calibrated.predict_proba(TEXTS).shape == (len(TEXTS), 2)
    score, *_ = permutation_test_score(classifier, TEXTS, CLASSES, cv=2, n_permutations=1)
    assert 0 <= score <= 1


@pytest.mark.slow
def test_processes_of_joblib(classifier):
    expected = cross_val_score(classifier, TEXTS, CLASSES, cv=2)
    found = cross_val_score(classifier, TEXTS, CLASSES, cv=2, n_jobs=2)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_pickles_load_in_a_new_process(fitted, tmp_path):
    content = pickle.dumps(fitted)
    assert b"tensorflow" not in content
    joblib.dump(fitted, tmp_path / "model.joblib")
    program = "import joblib, sys\nprint(joblib.load(sys.argv[1]).predict_proba(['fine']).tolist())"
    command = [sys.executable, "-c", program, str(tmp_path / "model.joblib")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = pickle.loads(content).predict_proba(["fine"])
    np.testing.assert_allclose(eval(result.stdout), expected, rtol=1e-5)
    np.testing.assert_array_equal(expected, fitted.predict_proba(["fine"]))


@pytest.mark.parametrize(
    ("X", "y", "error", "named"),
    [
        (TEXTS, [1] * 12, ValueError, "class"),
        (TEXTS, CLASSES + 0.5, ValueError, "continuous"),
        (TEXTS, [None, 1] * 6, ValueError, "y|label"),
        (TEXTS, CLASSES[:3], ValueError, "labels"),
        ([1, 2, 3], [0, 1, 0], TypeError, "texts"),
        (np.zeros([12, 5]), CLASSES, ValueError, r"\(12, 5\)"),
        ("text", CLASSES, TypeError, "texts"),
    ],
)
def test_invalid_data_are_rejected(classifier, X, y, error, named):
    new = clone(classifier)
    with pytest.raises(error, match=named):
        new.fit(X, y)
    with pytest.raises(NotFittedError):
        new.predict(TEXTS)


def test_importing_the_estimators_does_not_import_tensorflow():
    code = (
        "import sys, albert_tf.sklearn as s; s.AlbertClassifier(); sys.exit('keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def sentences(X):
    return [" ".join(f"{value:.2f}" for value in row) for row in np.asarray(X)]


class Sentences:
    """Makes texts of the numbers with which scikit-learn checks estimators."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        return tags

    def fit(self, X, y):
        return super().fit(sentences(X), y)

    def _predict(self, X):
        return super()._predict(sentences(X))


class CheckedClassifier(Sentences, AlbertClassifier):
    __init__ = AlbertClassifier.__init__


class CheckedRegressor(Sentences, AlbertRegressor):
    __init__ = AlbertRegressor.__init__


_NUMBERS = "texts are no matrix of numbers"
_ACCURACY = "needs more training than a test has time for"
NOT_APPLICABLE = {
    **dict.fromkeys(("check_n_features_in", "check_n_features_in_after_fitting"), _NUMBERS),
    **dict.fromkeys(("check_dtype_object", "check_estimators_nan_inf"), _NUMBERS),
    **dict.fromkeys(("check_estimator_sparse_tag", "check_estimator_sparse_array"), _NUMBERS),
    **dict.fromkeys(("check_estimator_sparse_matrix", "check_fit1d"), _NUMBERS),
    **dict.fromkeys(("check_fit2d_predict1d", "check_estimators_empty_data_messages"), _NUMBERS),
    **dict.fromkeys(("check_classifiers_train", "check_regressors_train"), _ACCURACY),
    "check_class_weight_classifiers": _ACCURACY,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CheckedClassifier, CheckedRegressor])
def test_checks_of_scikit_learn(kind, classifier):
    estimator = kind(classifier.model, epochs=1, max_seq_length=24, random_state=3)
    results = check_estimator(estimator, expected_failed_checks=NOT_APPLICABLE, on_skip=None)
    assert sum(result["status"] == "passed" for result in results) >= 30
