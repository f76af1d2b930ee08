"""How blocks of names and values are shown."""

from albert_tf.text_layout import rows


def test_a_block_has_a_title_and_two_columns():
    lines = list(rows("Model", {"layers": 12000, "is small": True, "x" * 31: "y"}))
    assert lines == [
        "",
        "Model",
        f"  {'layers':30}12,000",
        f"  {'is small':30}True",
        f"  {'x' * 31}  y",
    ]
