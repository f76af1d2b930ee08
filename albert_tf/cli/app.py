"""Runs commands: flags (parsed by absl), `--help`, errors and signals.

This module must not import TensorFlow, so that `--help` is fast. Commands import it when they run.
"""

import inspect
import logging as python_logging
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from absl import app, flags, logging

import albert_tf
from albert_tf.cli.flags import DRY_RUN_PASSED, Flags, log_flags_without_effect
from albert_tf.data.errors import UserError, printable
from albert_tf.data.files import WriteError, advice_on, is_missing_file_system
from albert_tf.data.log_file import COLUMNS, PACKAGE
from albert_tf.data.streams import (
    CPP_LOG_LEVEL,
    STANDARD_INPUT,
    discard_standard_output,
    flush_standard_output,
)
from albert_tf.settings import GROUPS, Settings
from albert_tf.training.directory_lock import DirectoryLockedError
from albert_tf.training.interruption import end_on_signals

_REPORT = (
    "error: unexpected exception, possibly a bug in albert_tf. Please report it with the stack "
    "trace above, the command line and the versions of albert_tf and tensorflow."
)
_WRAPPER = textwrap.TextWrapper(
    COLUMNS,
    subsequent_indent=" " * 4,
    replace_whitespace=False,
    break_long_words=False,
    break_on_hyphens=False,
)
_HELP = frozenset({"--help", "-help", "--helpshort", "-h", "-?"})
_HELP_ENDING = """
Write flags as --name=value, Boolean flags also as --name and --noname.
--flagfile=FILE reads flags from a file, one per line; flags after it take precedence.
--verbosity=1 shows stack traces of errors and the logs of other packages, -1 only warnings.
--helpfull also lists the flags of absl."""


@dataclass(frozen=True)
class Command:
    """A command, the `main` of its module.

    Errors that a user can correct end the process with a message and exit status 1. Other errors
    show their stack trace and how to report it. A signal ends the process with status 128 plus its
    number.

    Attributes:
        description: docstring of the module, with which `--help` begins.
        flags: the flags of the command.
        run: function that runs the command; takes the settings, and may return lines to print.
        takes_arguments: whether `run` also takes the list of arguments after `--`.
        takes_paths: whether `run` also takes the list of all arguments that are not flags.
        devices: "all" or "cpu": the devices that `run` may use, which are logged. If `None`, `run`
            selects and logs its devices, or uses none.
    """

    description: str | None
    flags: Flags
    run: Callable[..., Iterable[str] | None]
    takes_arguments: bool = False
    takes_paths: bool = False
    devices: str | None = None

    def __call__(self) -> None:
        """Parses the command line and runs the command."""
        self.flags.define()
        takes = self.takes_arguments, self.takes_paths
        try:
            with end_on_signals():
                app.run(self._main, flags_parser=lambda argv: parse(self.description, argv, *takes))
        except BrokenPipeError:
            discard_standard_output()  # the reader, such as `head`, has closed the pipe
            sys.exit(1)

    def _main(self, argv: Sequence[str]) -> None:
        logging.get_absl_handler().python_handler.addFilter(_name_flags)
        if not logging.level_debug():
            logging.get_absl_handler().setFormatter(_ScreenFormatter())
            _hide_other_logs()
        try:
            self._run(argv[1:])
            flush_standard_output()
        except BrokenPipeError:
            raise
        except Exception as error:
            if not is_user_error(error):
                traceback.print_exc()
                sys.exit(_REPORT)
            logging.debug("Stack trace of the error:", exc_info=True)
            try:
                flush_standard_output()
            except OSError:
                discard_standard_output()
            sys.exit(f"error: {explain(error, flags.FLAGS)}")

    def _run(self, arguments: Sequence[str]) -> None:
        log_flags_without_effect()
        settings = self.flags.settings()
        if self.devices == "cpu":  # the two models of a conversion must use the same device
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        if self.devices:
            from albert_tf.training.strategies import disable_tf32, log_devices

            disable_tf32()
            log_devices()
        self.execute(settings, *[arguments] * (self.takes_arguments or self.takes_paths))

    def execute(self, settings: Settings, *arguments: Any) -> None:
        """Runs the command, and prints its lines or, after a dry run, that all checks passed."""
        lines = self.run(settings, *arguments)
        for line in [DRY_RUN_PASSED] if getattr(settings, "dry_run", False) else lines or ():
            print(line)


def command(module: str, *arguments: Any, **options: Any) -> Command:
    """Returns a `Command` of these attributes, and calls it if `module` is "__main__"."""
    main = Command(*arguments, **options)
    if module == "__main__":
        main()
    return main


def job(name: str) -> Callable[[Any], None]:
    """Returns a function that calls `albert_tf.<name>`, which is imported then, with settings."""

    def run(settings: Any) -> None:
        getattr(albert_tf, name)(settings)

    return run


def is_user_error(error: Exception) -> bool:
    """Returns whether the user can correct the cause of an error."""
    if isinstance(error, (UserError, WriteError, ChildProcessError, DirectoryLockedError)):
        return True
    is_from_system = isinstance(error, OSError) and (error.filename or error.errno) is not None
    return is_from_system or isinstance(error, MemoryError) or is_missing_file_system(error)


def explain(error: Exception, values: flags.FlagValues) -> str:
    """Returns the message of an error, with advice and the related flags.

    Names of flags in backticks become --name. If a flag sets a path in the message, the flag is
    prepended.
    """
    if isinstance(error.__cause__, MemoryError):  # while a file was read, which is not damaged
        error = error.__cause__
    message = printable(_with_flags(str(error), values))
    present = (name for name in values if values[name].present)
    found = [(p, f"--{name}") for name in present for p in _places(values[name].value, message)]
    named = [flag for place, flag in found if place == min(found)[0]]
    if isinstance(error, MemoryError):
        message = f"Not enough memory{': ' * bool(message)}{message}. Use smaller files or batches."
    elif isinstance(error, WriteError):
        message += f" {advice_on(error)}, and run the same command again."
    elif is_missing_file_system(error):
        message += ". Use a local path or gs://."
    prefix = ", ".join(dict.fromkeys(flag for flag in named if flag not in message))
    return f"{prefix}: {message}" if prefix else message


def _with_flags(message: str, values: flags.FlagValues) -> str:
    return re.sub(r"`(\w+)`", lambda m: f"--{m[1]}" if m[1] in values else m[0], message)


def _name_flags(record: python_logging.LogRecord) -> bool:
    """Replaces argument names in a log line with flags, as in error messages."""
    record.msg, record.args = printable(_with_flags(record.getMessage(), flags.FLAGS)), ()
    return True


class _ScreenFormatter(python_logging.Formatter):
    """Formats log lines without time and file. Only warnings and errors begin with their level."""

    def format(self, record: python_logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " * (record.levelno > python_logging.INFO)
        lines = (level + super().format(record)).split("\n")
        return "\n".join(map(_WRAPPER.fill, lines))


def _places(value: object, message: str) -> Iterator[tuple[int, int]]:
    """Yields the start and the negative length of each path of a flag in a message."""
    texts = value if isinstance(value, list) else [value]
    parts = ",".join(text for text in texts if isinstance(text, str)).split(",")
    for path in filter(None, (printable(part.strip().rstrip("/")) for part in parts)):
        head = re.split(r"[*?@[]", path)[0]
        pattern = rf"(?<![\w./-]){re.escape(path)}(?![\w-])"
        if path == STANDARD_INPUT:
            pattern = "the standard input"
        elif head != path and "/" in head:
            pattern = rf"{pattern}|(?<![\w./-]){re.escape(head)}"
        elif "/" not in path and "." not in path:  # it may be a word
            pattern = rf"(?:^|(?<=['\"])){pattern}|{pattern}(?=/)"
        if found := re.search(pattern, message):
            yield found.start(), -len(found[0])


def help_text(description: str | None) -> str:
    """Returns the description of a command, followed by the defined flags by group."""
    groups = filter(None, map(flags.FLAGS.module_help, GROUPS))
    return "\n".join([inspect.cleandoc(description or ""), *groups, _HELP_ENDING])


def parse(
    description: str | None, argv: Sequence[str], takes_arguments: bool, takes_paths: bool
) -> list[str]:
    """Parses the flags. Returns the program name and the arguments that are not flags."""
    end = argv.index("--") if "--" in argv else len(argv)
    before, after = argv[:end], argv[end + 1 :]
    if not _HELP.isdisjoint(before):
        print(help_text(description), flush=True)
        sys.exit()
    malformed = [a for a in argv[1:] if a.encode(errors="replace").decode() != a]
    if malformed:
        sys.exit(
            f"error: The argument {malformed[0]!a} is not {sys.getfilesystemencoding()} text. Set "
            "PYTHONUTF8=1. If a file name is not UTF-8, rename the file."
        )
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow paths
    try:
        program, *paths = flags.FLAGS(before)
        unexpected = [*paths, *(() if takes_arguments else after)]
        if unexpected and not takes_paths:
            raise UserError(
                f"Unexpected argument {unexpected[0]!r}. Write flags as --name=value, separate "
                "files by commas, and quote values that contain spaces or *."
            )
    except (flags.Error, ValueError, OSError) as error:  # absl raises ValueError for --noflag=x
        sys.exit(printable(f"error: {error}\nUse --help to list the flags."))
    return [program, *paths, *after]


def _hide_other_logs() -> None:
    """Hides logs and warnings of other packages, unless the user has configured them."""

    def is_shown(record: python_logging.LogRecord) -> bool:
        return record.levelno >= python_logging.ERROR or record.pathname.startswith(PACKAGE)

    logging.get_absl_handler().python_handler.addFilter(is_shown)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    os.environ.pop(CPP_LOG_LEVEL, None)  # at any level, TensorFlow logs a missing GPU as an error
