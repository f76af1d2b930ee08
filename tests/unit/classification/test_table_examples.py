import pytest
from absl import logging

from albert_tf.classification.data import log_labels
from albert_tf.data.text_examples import DEV, TEST, TRAIN, Labels, TextExample


@pytest.fixture
def report(caplog):
    """Information and warnings about rows with the given labels."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)

    def of(found, labels: Labels, split: str = TRAIN) -> tuple[str, list[str]]:
        caplog.clear()
        log_labels("f", split, [TextExample("", "text", label=name) for name in found], labels)
        (info,) = (r.getMessage() for r in caplog.records if r.levelname == "INFO")
        return info, [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    yield of
    logging.set_verbosity(verbosity)


ABC = Labels(("a", "b", "c"))


def test_classes_are_counted(report):
    info, warnings = report("abacc", ABC)
    assert info.startswith("f: split=train rows=5 ")
    assert "a: 2 (40.0%), b: 1 (20.0%), c: 2 (40.0%)" in info
    assert not warnings
    info, warnings = report(["1.5", "-2", "2"], Labels(), DEV)
    assert "from -2 to 2, mean 0.5" in info
    assert not warnings
    assert "without labels" in report([None, None], ABC, TEST)[0]


@pytest.mark.parametrize(("found", "labels"), [("bbb", ABC), (["2", "2"], Labels())])
def test_one_label_only_is_warned_of(report, found, labels):
    info, (warning,) = report(found, labels, DEV)
    assert repr(found[0]) in warning
    assert labels.is_regression or "a: 0 (0.0%)" in info


def test_labels_that_are_no_classes_are_warned_of(report):
    names = [str(number / 4) for number in range(21)]
    info, (warning,) = report(names, Labels(tuple(names)))
    assert "--regression" in warning
    assert info.endswith("4.75: 1 (4.8%), and 1 more")
    assert not report(names * 2, Labels(tuple(names)))[1]
