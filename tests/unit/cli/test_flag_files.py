"""Files of flags."""

import pytest

from albert_tf.cli.flag_files import FlagFileError, line_arguments, with_flag_files


def texts(*arguments):
    return [argument.text for argument in with_flag_files(arguments)]


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("--do_train", ["--do_train"]),
        ("  --size=7\t", ["--size=7"]),
        ("--size 7", ["--size", "7"]),
        ("--size = 7", ["--size", "= 7"]),  # refused later, with a message
        ("--text=two words, and a=b", ["--text=two words, and a=b"]),
        ("--text='two words'", ["--text=two words"]),
        ('--text " blanks around "', ["--text", " blanks around "]),
        ("--text=it's", ["--text=it's"]),
        ("--text='a' and 'b'", ["--text='a' and 'b'"]),
        ("--text=", ["--text="]),
        ("--text=''", ["--text="]),
        ("--size=7  # gigabytes", ["--size=7"]),
        ("--text=a#b", ["--text=a#b"]),
        ("--text='a # b'  # c", ["--text=a # b"]),
        ("--do_train  # at once", ["--do_train"]),
        ("--path=gs://bucket/a", ["--path=gs://bucket/a"]),
        ("# --size=7", []),
        ("// --size=7", []),
        ("   ", []),
    ],
)
def test_a_line_is_a_flag(line, arguments):
    assert line_arguments(line) == arguments


def test_a_file_stands_for_its_flags_where_it_is_named(tmp_path):
    inner, outer = tmp_path / "inner.flags", tmp_path / "outer.flags"
    inner.write_bytes(b"\xef\xbb\xbf--a=1\r\n\r\n--b=2\r\n")
    outer.write_text(f"--c=3\n--flagfile={inner}\n# done\n--d=4")
    arguments = with_flag_files(["--x", f"--flagfile={outer}", "-flagfile", str(inner), "y"])
    assert [argument.text for argument in arguments] == [
        *("--x", "--c=3", "--a=1", "--b=2", "--d=4", "--a=1", "--b=2", "y")
    ]
    assert arguments[0].place == ""
    assert arguments[3].place == f"{inner}, line 3"
    assert arguments[4].place == f"{outer}, line 4"


def test_a_file_may_be_named_again_but_not_in_itself(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(f"--a\n--flagfile={second}\n")
    second.write_text("--b\n")
    assert texts(f"--flagfile={first}", f"--flagfile={second}") == ["--a", "--b", "--b"]
    second.write_text(f"--flagfile={first}\n")
    with pytest.raises(
        FlagFileError, match=rf"{first} \({second}, line 1\): the file names itself"
    ):
        texts(f"--flagfile={first}")


@pytest.mark.parametrize("arguments", [["--flagfile"], ["--flagfile="]])
def test_a_file_must_be_named(arguments):
    with pytest.raises(FlagFileError, match="--flagfile needs the name of a file: --flagfile=FILE"):
        texts(*arguments)


def test_a_missing_file_and_one_that_is_no_text_are_errors(tmp_path):
    missing = tmp_path / "missing"
    with pytest.raises(FlagFileError, match=f"--flagfile={missing}: there is no such file"):
        texts(f"--flagfile={missing}")
    binary = tmp_path / "binary"
    binary.write_bytes(b"--a=\xff\xfe")
    with pytest.raises(FlagFileError, match=f"--flagfile={binary} cannot be read: .*line 1"):
        texts(f"--flagfile={binary}")
