"""The test's own `python`: programs start and end in it as in the real one."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.programs import ROOT, strangers_python, warm_python


@pytest.fixture(params=["real", "warm", "stranger's"])
def python(request) -> str:
    servers = {"warm": warm_python, "stranger's": strangers_python}
    return str(servers[request.param]()) if request.param in servers else sys.executable


def run(python: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('told why')", 1),
        ("raise ValueError('told why')", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_a_program_ends_as_it_ends(python, program, code):
    done = run(python, "-c", program)
    assert done.returncode == code
    assert ("told why" in done.stderr) == ("told why" in program)


def test_a_program_has_its_folder_environment_input_and_arguments(python, tmp_path):
    (tmp_path / "own_module.py").write_text(
        "import os, sys\n"
        "print(sys.argv[1:], os.getcwd(), os.environ['OWN'], input(), __name__)\n"
        "print(os.path.basename(sys.executable), file=sys.stderr)\n"
    )
    environment = {"PATH": os.environ["PATH"], "OWN": "own value"}
    expected = f"['a b', '--c'] {tmp_path} own value typed __main__\n"
    for way in (("-m", "own_module"), ("own_module.py",)):
        done = run(python, *way, "a b", "--c", cwd=tmp_path, env=environment, input="typed")
        assert done.stdout == expected, done.stderr
        assert done.stderr.startswith("python")


def test_signals_reach_the_program(python, tmp_path):
    program = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "pathlib.Path('started').touch()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([python, "-c", program], cwd=tmp_path) as process:
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 5


def test_modules_are_imported_already():
    program = "import sys; print('tensorflow' in sys.modules, 'albert_tf.training' in sys.modules)"
    assert run(str(warm_python()), "-c", program).stdout == "True True\n"


def test_a_stranger_has_imported_what_tensorflow_imports_and_no_more(tmp_path, monkeypatch):
    """Beyond what starting a program takes; and finds nothing of the tests."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    shown = "import json, sys; print(json.dumps([sorted(sys.modules), sys.path]))"
    own, anew = (
        json.loads(run(python, "-c", program, cwd=tmp_path).stdout)
        for python, program in (
            (str(strangers_python()), shown),
            (sys.executable, f"import tensorflow; {shown}"),
        )
    )
    assert "tensorflow" in own[0]
    assert set(own[0]) - set(anew[0]) <= {"runpy", "array", "_posixsubprocess"}
    assert not {"albert_tf", "tests"} & set(own[0])
    assert not {str(ROOT), str(ROOT / "tests")} & set(own[1])
