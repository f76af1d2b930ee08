"""The package's front door."""

import subprocess
import sys

import albert_tf


def test_every_public_name_loads():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
    assert set(albert_tf.__all__) <= set(dir(albert_tf))


def test_importing_the_package_loads_no_tensorflow():
    code = "import sys, albert_tf; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
