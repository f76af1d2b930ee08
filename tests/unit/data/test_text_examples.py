import numpy as np
import pytest

from albert_tf.labels import Labels, warn_of_doubtful_labels


def test_labels_are_encoded():
    labels = Labels(("no", "yes", "1"))
    ids = labels.encode(["1", "no", "yes", "no"])
    np.testing.assert_array_equal(ids, [2, 0, 1, 0])
    assert ids.dtype == labels.encode([]).dtype == np.int32
    assert (labels.num_outputs, labels.is_regression) == (3, False)
    labels = Labels()
    numbers = labels.encode(["0.5", " -1e2 ", "3", "+.5E-1", "7."])
    np.testing.assert_array_equal(numbers, np.float32([0.5, -100, 3, 0.05, 7]))
    assert numbers.dtype == np.float32
    assert (labels.num_outputs, labels.is_regression) == (1, True)


def test_invalid_labels_are_rejected():
    with pytest.raises(ValueError, match="Unknown label 'No'; allowed: 'no', 'yes'"):
        Labels(("no", "yes")).encode(["no", "No", "never"])
    for label in ["nan", "inf", "1,5", "1_0", "\u0661\u0662", "\uff11", "1e", ".", "0x1", "1e39"]:
        with pytest.raises(ValueError, match=f"Unknown label '{label}'; allowed: a finite number"):
            Labels().encode(["1", label])
    for names in (("a",), ("a", "b", "a")):
        with pytest.raises(ValueError, match="Received: 'a'"):
            Labels(names)


def test_one_warning_lists_doubtful_classes(caplog):
    warn_of_doubtful_labels("x.csv", ["no", "yes", "1", "10", "+", "-", "nano", "O", "B-0", "0"])
    assert not caplog.messages
    pairs = [("Pos", "pos"), ("\u00e9", "e\u0301"), ("1", "1.0"), ("a b", "a  b "), ("nan", "NA")]
    warn_of_doubtful_labels("x.csv", ["no", *map(min, pairs), *map(max, pairs), "None"])
    [message] = caplog.messages
    for name in ("x.csv", "None", *pairs[-1], *(f"'{min(p)}' / '{max(p)}'" for p in pairs[:-1])):
        assert name in message
