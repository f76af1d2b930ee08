"""`log.txt` of a job."""

import contextlib
import logging as python_logging

import pytest
from absl import logging

from albert_tf.data import log_file
from albert_tf.data.log_file import collected_log, write_log_to


@pytest.fixture(autouse=True)
def package(monkeypatch):
    monkeypatch.setattr(log_file, "PACKAGE", __file__)


def test_all_levels_are_written_and_the_usual_ones_are_shown(tmp_path, caplog):
    caplog.set_level("WARNING", logger="absl")
    path = tmp_path / "log.txt"
    other = python_logging.LogRecord("absl", python_logging.INFO, "/other.py", 1, "other", (), None)
    with contextlib.suppress(KeyError), collected_log():
        logging.debug("before %s", "the directory")
        logging.get_absl_logger().handle(other)
        assert not path.exists()
        write_log_to(str(tmp_path))
        logging.warning("after it: https://me:secret@host/\x1b[1m")
        assert path.read_text().endswith(" WARNING after it: https://***host/\\x1b[1m\n")
        raise KeyError(5)
    logging.warning("after the job")
    lines = [line.split(" ", 2)[2] for line in path.read_text().splitlines()]
    assert lines == [
        "DEBUG before the directory",
        "WARNING after it: https://***host/\\x1b[1m",
        "ERROR KeyError: 5",
    ]
    assert caplog.messages[1:] == ["after the job"]


def test_a_second_job_appends_its_own_lines(tmp_path):
    for name in ("first", "second"):
        with collected_log():
            logging.info(name)
            write_log_to(str(tmp_path))
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["first", "second"]
