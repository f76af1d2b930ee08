"""Numbers of exports."""

import time

from albert_tf.serving.saved_model import next_version


def test_the_newest_export_has_the_largest_number(tmp_path, monkeypatch):
    earliest = int(time.time())
    assert earliest <= int(next_version(str(tmp_path / "absent"))) <= time.time()
    monkeypatch.setattr(time, "time", lambda: 1000.9)
    for name in ("text", "2000.tmp", "-3000", "999"):
        (tmp_path / name).mkdir()
    assert next_version(str(tmp_path)) == "1000"
    for latest in (1000, 2000, 10**18):  # the clock was set back
        (tmp_path / str(latest)).mkdir()
        assert next_version(f"file://{tmp_path}") == str(latest + 1)
