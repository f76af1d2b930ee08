"""How a command starts and ends; imports nothing that takes long."""

from __future__ import annotations

import glob
import logging as python_logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NoReturn

from absl import app, flags, logging

from albert_tf.cli.command_line import find_mistakes
from albert_tf.cli.dry_run import dry_run_context
from albert_tf.cli.flag_descriptions import (
    CommandDescription,
    describe_command,
    names_defined_by,
)
from albert_tf.cli.flag_files import FlagFileError, with_flag_files
from albert_tf.cli.help_text import help_text, program_of, terminal_width
from albert_tf.data.streams import (
    discard_standard_output,
    discarded_standard_error,
    flush_standard_output,
)
from albert_tf.training.interruption import end_on_signals

# What a user can put right: shown as a message, without the stack of the program.
UserError = (ValueError, OSError)

_CPP_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

_HELP = frozenset({"--help", "-help", "--helpshort", "-h", "-?"})
_FULL_HELP = frozenset({"--helpfull", "--helpxml"})  # absl's own, of all flags in the process


def run_command(
    define_flags: Callable[[], None],
    run: Callable[..., None],
    takes_arguments: bool = False,
    takes_paths: bool = False,
) -> None:
    """Defines the flags, parses the command line and runs the command.

    An error the user can put right ends the process with its message and exit status 1;
    `--verbosity=1` shows where it came from as well. A signal ends it with a line and status 128
    and the signal's number, after tidying up.

    Args:
        define_flags: defines the flags of the command; the docstring of its module is the head of
            what --help prints.
        run: the command; reads `flags.FLAGS`.
        takes_arguments: whether `run` is given what follows a -- on the command line, as a list.
        takes_paths: whether `run` is given everything on the command line that is no flag.
    """

    def main(argv: Sequence[str]) -> None:
        if not logging.level_debug():
            _show_own_log()
        try:
            with dry_run_context(flags.FLAGS):
                run(argv[1:]) if takes_arguments or takes_paths else run()
            flush_standard_output()
        except BrokenPipeError:
            raise
        except UserError as error:
            logging.debug("Where the error came from:", exc_info=True)
            sys.exit(f"error: {_message(error)}")

    module = sys.modules[define_flags.__module__]
    command = describe_command(module, names_defined_by(define_flags))

    def parse(argv: Sequence[str]) -> list[str]:
        return _parse(command, argv, takes_arguments=takes_arguments, takes_paths=takes_paths)

    try:
        with end_on_signals():
            app.run(main, flags_parser=parse)
    except BrokenPipeError:
        discard_standard_output()  # whoever read it, `head` say, has left
        sys.exit(1)


class _SilentTensorFlow:
    """Imports TensorFlow, whenever that comes, so that it says nothing of itself.

    Its C++ code stays silent afterwards, too; where there is an NVIDIA device its errors are shown.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds TensorFlow; see `importlib.abc.MetaPathFinder`."""
        if name != "tensorflow":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run_module = spec.loader.exec_module

            def run_silently(module: ModuleType) -> None:
                os.environ[_CPP_LOG_LEVEL] = "2" if _has_nvidia_device() else "3"
                # Some lines come before it has looked at the level.
                with discarded_standard_error():
                    run_module(module)

            spec.loader.exec_module = run_silently  # type: ignore[method-assign]
        return spec


def _has_nvidia_device() -> bool:
    """Whether TensorFlow may find a GPU, as far as can be said without TensorFlow."""
    if os.environ.get(_VISIBLE_GPUS) in ("", "-1"):
        return False
    return bool(glob.glob("/dev/nvidia*")) or os.path.exists("/dev/dxg")  # the latter on WSL


def _show_own_log() -> None:
    """Shows what this package logs, and of what other packages log or warn of, errors alone.

    What a user has set in TF_CPP_MIN_LOG_LEVEL, PYTHONWARNINGS or with -W is left as it is.
    """

    def is_shown(record: python_logging.LogRecord) -> bool:
        return record.levelno >= python_logging.ERROR or record.pathname.startswith(_PACKAGE)

    logging.get_absl_handler().python_handler.addFilter(is_shown)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if _CPP_LOG_LEVEL not in os.environ:
        sys.meta_path.insert(0, _SilentTensorFlow)


def _parse(
    command: CommandDescription, argv: Sequence[str], *, takes_arguments: bool, takes_paths: bool
) -> list[str]:
    """Gives the flags their values; returns the program and the arguments that are no flags."""
    program = program_of(command.name, argv[0])
    texts, after = _split(argv[1:])
    if _HELP & set(texts):
        print(help_text(command, program, terminal_width()), flush=True)
        sys.exit()
    if wanted := _FULL_HELP & set(texts):
        flags.FLAGS([argv[0], *wanted])
    try:
        arguments = with_flag_files(texts)
    except FlagFileError as error:
        _fail(program, [str(error)])
    mistakes = find_mistakes(command.name, command.flags(), arguments, takes_paths=takes_paths)
    if after and not (takes_arguments or takes_paths):
        mistakes.append(f"Nothing can stand after a --. Received: {' '.join(after)}")
    if mistakes:
        _fail(program, mistakes)
    flags.FLAGS.set_gnu_getopt(True)  # flags are flags behind a path, too
    try:
        rest = flags.FLAGS([argv[0], *(argument.text for argument in arguments)])
    except flags.Error as error:
        _fail(program, [str(error)])
    return [*rest, *after]


def _split(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before the first --, and what stands after it."""
    place = texts.index("--") if "--" in texts else len(texts)
    return list(texts[:place]), list(texts[place + 1 :])


def _message(error: Exception) -> str:
    """What to say of an error; where it came of printing, what was to be written."""
    try:
        flush_standard_output()
    except OSError as lost:
        discard_standard_output()
        return str(lost if type(error) is OSError else error)
    return str(error)


def _fail(program: str, mistakes: Sequence[str]) -> NoReturn:
    """Ends the process with what is wrong."""
    if len(mistakes) == 1:
        message = f"error: {mistakes[0]}"
    else:
        lines = (f"\n  {mistake}" for mistake in mistakes)
        message = f"error: {len(mistakes)} mistakes on the command line:{''.join(lines)}"
    sys.exit(f"{message}\n`{program} --help` lists the flags.")
