"""Tests for texts that are safe to print."""

import pytest

from albert_tf.data.errors import UserError, visible, without_secrets
from albert_tf.data.files import reason_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:pw@h/a.tar.gz?token=abc&x=1", "https://***h/a.tar.gz?***&***"),
        ("https://h/m?tf-hub-format=compressed", "https://h/m?tf-hub-format=compressed"),
        ("Open 'https://h/m?sig=a%3D&b'.", "Open 'https://h/m?***&***'."),
        ("HTTP://u:p/@?w@h/m", "HTTP://***h/m"),
        ("s3://key:secret@bucket/a@2", "s3://***bucket/a@2"),
        ("https://h/m#access", "https://h/m#***"),
        ("https://h/m?a=O'Neil: lost", "https://h/m?***: lost"),
        ("Is it https://h/m? Or gs://b/train@16?", "Is it https://h/m? Or gs://b/train@16?"),
    ],
)
def test_secrets_in_urls_are_replaced(text, expected):
    assert without_secrets(text) == expected
    assert str(UserError(text)) == reason_of(OSError(text)) == expected


def test_control_characters_are_escaped():
    assert visible("a\x1b[31m\r\n\u202eé\udcff 中") == r"a\x1b[31m\r\n\u202eé\udcff 中"
    assert str(UserError("a\x07\nb")) == "a\\x07\nb"
