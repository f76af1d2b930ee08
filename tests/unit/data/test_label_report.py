import pytest
from absl import logging

from albert_tf.data.label_report import log_labels
from albert_tf.data.text_examples import DEV, TEST, TRAIN, Labels, TextExample


@pytest.fixture
def report(caplog):
    """Information and warnings about rows with the given labels."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.INFO)

    def of(found, labels: Labels, split: str = TRAIN) -> tuple[list[str], list[str]]:
        caplog.clear()
        log_labels("f", split, [TextExample("", "text", label=name) for name in found], labels)
        assert all(message.startswith("f: ") for message in caplog.messages)
        texts = [(record.levelname, record.getMessage()[3:]) for record in caplog.records]
        return (
            [text for level, text in texts if level == "INFO"],
            [text for level, text in texts if level == "WARNING"],
        )

    yield of
    logging.set_verbosity(verbosity)


ABC = Labels(("a", "b", "c"))


def test_classes_are_counted(report):
    assert report("abacc", ABC) == (
        ["split=train rows=5 labels a: 2 (40.0%), b: 1 (20.0%), c: 2 (40.0%)"],
        [],
    )


def test_numbers_have_range_and_mean(report):
    assert report(["1.5", "-2", "2"], Labels(), DEV) == (
        ["split=dev rows=3 labels from -2 to 2, mean 0.5"],
        [],
    )


def test_rows_without_labels_are_counted(report):
    assert report([None, None], ABC, TEST) == (["split=test rows=2 without labels"], [])


def test_missing_classes_matter_in_training(report):
    warning = "no row has the label 'b', which cannot be learned from it"
    assert report("acc", ABC)[1] == [warning]
    assert report("acc", ABC, DEV) == (
        ["split=dev rows=3 labels a: 1 (33.3%), b: 0 (0.0%), c: 2 (66.7%)"],
        [],
    )


def test_one_label_only_is_warned_of(report):
    assert report("bbb", ABC, DEV)[1] == ["all 3 rows have the label 'b'"]
    assert report(["2", "2"], Labels())[1] == ["all 2 rows have the label '2'"]
    assert report("bb", ABC)[1] == [
        "no row has the labels 'a', 'c', which cannot be learned from it",
        "all 2 rows have the label 'b'",
    ]


def test_imbalance_is_warned_of(report):
    assert report("abc" + "b" * 8, ABC)[1] == []
    (warning,) = report("abc" + "b" * 9, ABC)[1]
    assert warning.startswith("the classes are out of balance: 'b' has 10 rows, 'a' 1;")


def test_labels_that_are_no_classes_are_warned_of(report):
    names = [str(number / 4) for number in range(21)]
    info, (warning,) = report(names, Labels(tuple(names)))
    assert warning.startswith("21 different labels in 21 rows; are they classes? --label_column")
    assert info[0].endswith("4.75: 1 (4.8%), and 1 more")
    assert report(names * 2, Labels(tuple(names)))[1] == []


def test_labels_that_look_alike_are_warned_of(report):
    names = ("1", "1.0", "10", "1e1", "NO", "No", "no", "yes")
    assert report(names, Labels(names))[1] == [
        "the labels '1', '1.0' are one number",
        "the labels '10', '1e1' are one number",
        "the labels 'NO', 'No', 'no' differ only in case",
    ]
    assert report(names, Labels(names), DEV)[1] == []
