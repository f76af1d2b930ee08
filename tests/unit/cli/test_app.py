"""Start and end of commands: flags, errors, logs."""

import importlib.util
import os
import platform
import signal
import subprocess
import sys

import pytest
from absl import logging
from absl.flags import FLAGS

from albert_tf.cli import app, inspect, run_classifier
from albert_tf.data import streams
from albert_tf.data.errors import UserError
from albert_tf.data.files import WriteError
from tests.command_flags import flags_of
from tests.programs import ROOT, run_program, unwrapped
from tests.run_in_process import given, run_here


def program_of(function: str, **options: object) -> str:
    """Returns the code of a command that calls the function `run`."""
    return f"""
from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.settings import Settings
{function}
command(__name__, __doc__, Flags(Settings), run, **{options})
"""


# A command that imports a stub of TensorFlow. Like TensorFlow, the stub writes before it reads its
# variables, whose values the command prints.
COMMAND = program_of("""
import os, warnings
from absl import logging

def run(settings):
    import tensorflow
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"):
        os.write(2, f"{name}={os.environ.get(name)}\\n".encode())
    logging.warning("of another package")
    warnings.warn("of Python")
    logging.error("error of another package")
""")
PRINTING_COMMAND = program_of(
    """
from albert_tf.data.streams import open_output

def run(settings, texts):
    for text in texts:
        with open_output(None) as file:
            file.write(text.encode())
""",
    takes_paths=True,
)
TF32_COMMAND = program_of(
    """
def run(settings):
    import tensorflow as tf
    print("TF32", tf.config.experimental.tensor_float_32_execution_enabled())
""",
    devices="all",
)
ONEDNN = f"TF_ENABLE_ONEDNN_OPTS={'1' if platform.machine() == 'x86_64' else None}"
TENSORFLOW = 'import os\nos.write(2, b"WARNING: at its start\\n")\n'


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a command with pipes for its output, unless `options` set others."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, text=True, check=False, **{"cwd": ROOT, **pipes, **options})


def run_python(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, *arguments, **options)


def environment(**variables: str) -> dict[str, str]:
    """Returns environment variables of a user who has set only these variables."""
    settings = {"CUDA_VISIBLE_DEVICES", "PYTHONWARNINGS"}
    settings |= {"TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"}
    kept = {name: value for name, value in os.environ.items() if name not in settings}
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def test_a_closed_pipe_prints_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = run_python(ROOT / "run_pretraining.py", "--help", stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("output", "text", "message"),
    [
        ("> full", ["x" * 10**5], "error: the standard output "),
        (">&-", ["x"], "error: The standard output "),
        (">&-", [], None),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_unwritable_output_is_a_one_line_error(tmp_path, unbuffered, output, text, message):
    (tmp_path / "program.py").write_text(PRINTING_COMMAND)
    limited = f'ulimit -f 0; "$0" "$@" {output}'  # no file can be written to
    done = run(
        *("sh", "-c", limited, sys.executable, "program.py", *text),
        cwd=tmp_path,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )
    assert done.returncode == bool(message)
    assert [line.startswith(message) for line in done.stderr.splitlines()] == [True] * bool(message)


@pytest.mark.parametrize(
    ("arguments", "variables", "shown", "hidden"),
    [
        ([], {}, {"LEVEL=3", ONEDNN}, {"at its start", "warning: of another package", "of Python"}),
        (["--verbosity=1"], {},
         {"LEVEL=None", ONEDNN, "at its start", "] of another package", "of Python"}, set()),
        ([], {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"},
         {"LEVEL=3", "OPTS=0"}, {"at its start", "warning: of another package", "of Python"}),
        ([], {"PYTHONWARNINGS": "default"}, {"LEVEL=3", "of Python"}, {"at its start"}),
    ],
)  # fmt: skip
def test_logs_are_hidden_and_onednn_is_enabled_by_default(
    tmp_path, arguments, variables, shown, hidden
):
    (tmp_path / "program.py").write_text(COMMAND)
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    variables = environment(CUDA_VISIBLE_DEVICES="-1", **variables)
    done = run_python(tmp_path / "program.py", *arguments, env=variables)
    assert done.returncode == 0, done.stderr
    assert "error of another package" in done.stderr
    assert {text for text in shown | hidden if text in done.stderr} == shown


def test_onednn_is_unchanged_if_tensorflow_was_imported_first(tmp_path):
    (tmp_path / "tensorflow.py").write_text("")
    code = "import tensorflow, albert_tf, os; print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
    done = run_python("-c", code, cwd=tmp_path, env=environment())
    assert (done.stdout, done.returncode) == ("None\n", 0)


def test_output_of_an_aborted_import_is_shown(tmp_path):
    (tmp_path / "program.py").write_text(COMMAND)
    (tmp_path / "tensorflow.py").write_text(f"{TENSORFLOW}os.abort()")
    done = run_python(tmp_path / "program.py", env=environment())
    assert done.returncode == -signal.SIGABRT
    assert "at its start" in done.stderr


@pytest.mark.parametrize(
    ("devices", "visible", "given", "level"),
    [
        (["/dev/nvidia0"], "", None, "3"),
        (["/dev/nvidia0"], "0", None, "2"),
        ([], "0", None, "3"),
        ([], "0", "2", "3"),
        ([], "0", "0", "0"),
        (["/dev/nvidia0"], "0", "3", "3"),
    ],
)
def test_tensorflow_logs_errors_if_there_is_a_gpu(
    tmp_path, monkeypatch, devices, visible, given, level
):
    (tmp_path / "tensorflow.py").write_text("")
    monkeypatch.setattr(streams.glob, "glob", lambda pattern: devices)
    monkeypatch.setattr(streams.os.path, "exists", lambda path: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    if given is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    spec = importlib.util.spec_from_file_location("tensorflow", tmp_path / "tensorflow.py")
    streams.import_tensorflow(spec.loader.exec_module, importlib.util.module_from_spec(spec))
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == level


@pytest.mark.parametrize(("home", "expected"), [("~", "/tmp/.keras"), ("/home/me", None)])
def test_keras_creates_no_directory_named_after_a_missing_home(
    tmp_path, monkeypatch, home, expected
):
    monkeypatch.setenv("KERAS_HOME", "")  # is restored at the end
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setattr(streams.os.path, "expanduser", lambda path: home)
    streams.import_tensorflow(lambda module: None, os)
    assert os.environ.get("KERAS_HOME") == expected


def test_long_lines_of_the_log_are_wrapped_except_in_words(caplog):
    path = "/folder" * 20
    text = f"{'seven ' * 30}{path} is read"
    with caplog.at_level("INFO", logger="absl"):
        logging.info(text)
        logging.warning("short")
    first, second = map(app._ScreenFormatter().format, caplog.records)
    assert [line for line in first.split("\n") if len(line) > 100] == [f"    {path}"]
    assert len(first.split("\n")) == 4
    assert unwrapped(first) == text
    assert second == "warning: short"


def test_tensorflow_is_imported_in_python_without_a_standard_error(tmp_path):
    (tmp_path / "tensorflow.py").write_text("")
    program = 'exec "$0" -c "import albert_tf, tensorflow; print(1)" 2>&-'
    done = run("sh", "-c", program, sys.executable, cwd=tmp_path, env=environment())
    assert (done.returncode, done.stdout) == (0, "1\n")


def parse(name, arguments, **options):
    """Parses a command line; returns the arguments that are not flags, and the seed."""
    settings = {"takes_arguments": False, "takes_paths": False, **options}
    with flags_of(name) as values:
        _, *rest = app.parse("Help.", [f"albert_tf {name}", *arguments], **settings)
        return rest, values.seed if "seed" in values else None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--do_train", "--nodo_eval", "-seed=3", "--do_predict=False", "--do_eval=1"],
        ["--learning_rate", "-1e-3", "--label_column=", "--text_a_column=--x", "--seed", "3"],
        ["--seed=3", "--nonsense=3", "--undefok=nonsense,other", "--noother", "--verbosity=0"],
    ],
)
def test_flags_are_written_in_every_form_of_absl(arguments):
    assert parse("run_classifier", [*arguments, "--output_dir=out"]) == ([], 3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--train-batch-size", "3"], "train_batch_size"),
        (["--do_train", "true"], "true"),
        (["--train_file", "a.csv", "b.csv"], "b.csv"),
        (["--nodo_train=true"], "--nodo_train"),
        (["--seed=1e3"], "--seed"),
        (["--optimizer=adam"], "--optimizer"),
        ([], "--output_dir"),
        (["--flagfile=/no/such/file"], "/no/such/file"),
    ],
)
def test_invalid_command_lines_are_rejected(arguments, named):
    needed = ["--output_dir=out"] if arguments else []
    with pytest.raises(SystemExit) as error:
        parse("run_classifier", [*needed, *arguments])
    assert error.value.code.startswith("error: ")
    assert named in error.value.code


@pytest.mark.parametrize(
    ("error", "explained"),
    [
        (ValueError("line 2 of /x/a.csv is bad"), "--train_file: line 2 of /x/a.csv is bad"),
        (ValueError("'/x/a.csvx' is bad"), "'/x/a.csvx' is bad"),
        (ValueError("runs/sub is bad, as /x/a.csv"), "--output_dir: runs/sub is bad, as /x/a.csv"),
        (ValueError("two runs are bad"), "two runs are bad"),
        (ValueError("the standard input is bad"), "--predict_file: the standard input is bad"),
        (ValueError("/x/b.csv is bad"), "--dev_file, --test_file: /x/b.csv is bad"),
        (ValueError("`dev_file` is not `x`. See /x/b.csv"), "--test_file: --dev_file is not `x`."),
        (FileNotFoundError(2, "No such file", "/x/a.csv"), "--train_file: [Errno 2] No such file"),
        (WriteError("runs/a cannot be written."), "--output_dir: runs/a cannot be written. Make"),
    ],
)
def test_errors_name_the_flags_of_their_paths(error, explained):
    flags = {"train_file": "/x/a.csv", "dev_file": "/x/b.csv", "test_file": "/x/b.csv"}
    with given(run_classifier, {**flags, "predict_file": "-", "output_dir": "runs/"}):
        assert app.explain(error, FLAGS).startswith(explained)


@pytest.mark.parametrize(
    ("options", "arguments", "rest"),
    [
        ({"takes_paths": True}, ["a", "--verbosity=0", "-", "--", "--b"], ["a", "-", "--b"]),
        ({"takes_arguments": True}, ["--verbosity=0", "--", "--a", "b"], ["--a", "b"]),
    ],
)
def test_arguments_are_passed_to_commands_that_accept_them(options, arguments, rest):
    assert parse("inspect", arguments, **options) == (rest, None)


@pytest.mark.parametrize(
    ("option", "arguments", "named"),
    [("takes_arguments", ["path", "--", "--a"], "path"), ("takes_paths", ["a\udcff"], r"a\udcff")],
)
def test_unexpected_and_undecodable_arguments_are_rejected(option, arguments, named):
    with pytest.raises(SystemExit) as error:
        parse("inspect", arguments, **{option: True})
    assert f"'{named}'" in error.value.code


@pytest.mark.parametrize("verbosity", [0, 1])
def test_an_error_has_a_stack_trace_only_on_demand(tmp_path, verbosity):
    done = run_python(
        *("-m", "albert_tf", "train_sentencepiece", f"--input_file={tmp_path}/none"),
        *(f"--model_prefix={tmp_path}/prefix", f"--verbosity={verbosity}"),
    )
    assert done.returncode == 1
    assert not done.stdout
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert f"{tmp_path}/none" in done.stderr.splitlines()[-1]
    assert ("Traceback" in done.stderr) == bool(verbosity)


def test_a_path_without_a_file_system_is_a_user_error():
    with pytest.raises(UserError, match="s3://bucket/model"):
        run_here(inspect, {}, ["s3://bucket/model"])


def test_an_unexpected_error_shows_its_stack_trace_and_how_to_report_it():
    result = run_python("-c", program_of("def run(settings): {}['missing']"))
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "KeyError: 'missing'" in result.stderr
    assert "report it" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "raised", ["MemoryError()", "OSError(5, 'damaged', 'a') from MemoryError('Unable to allocate')"]
)
def test_too_little_memory_is_a_one_line_error(raised):
    result = run_python("-c", program_of(f"def run(settings): raise {raised}"))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: Not enough memory")
    assert "damaged" not in line
    assert ("Unable to allocate" in line) == ("allocate" in raised)


def test_commands_compute_float32_without_tf32(tmp_path):
    """On an H100, TF32 changed the probabilities of fill_mask by up to 1.6e-4."""
    (tmp_path / "program.py").write_text(TF32_COMMAND)
    result = run_program(str(tmp_path / "program.py"), tmp_path, {})
    assert result.code == 0
    assert "TF32 False" in result.output
