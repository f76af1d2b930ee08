from albert_tf.data.rows import Oddities


def test_one_warning_a_kind_names_the_first_lines(caplog):
    oddities = Oddities("x.tsv")
    oddities.log()
    assert not caplog.messages
    for line in (2, 3, 5, 7, 11, 13):
        oddities.add("too few columns, left out", line)
        if line == 7:
            oddities.add("NUL characters, kept", line)
    oddities.log()
    assert caplog.messages == [
        "x.tsv: rows=6 with too few columns, left out (lines 2, 3, 5, 7, 11, ...)",
        "x.tsv: rows=1 with NUL characters, kept (line 7)",
    ]
    assert [f"x.tsv: {message}" for message in oddities.messages()] == caplog.messages
