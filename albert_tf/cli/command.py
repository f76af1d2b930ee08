"""How a command starts and ends; imports nothing that takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import app, flags, logging

from albert_tf.cli.command_line import find_mistakes
from albert_tf.cli.dry_run import keep_nothing
from albert_tf.cli.flag_descriptions import (
    CommandDescription,
    describe_command,
    names_defined_by,
)
from albert_tf.cli.flag_files import FlagFileError, with_flag_files
from albert_tf.cli.help_text import help_text, program_of, terminal_width

# What a user can put right: shown as a message, without the stack of the program.
UserError = (ValueError, OSError)

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
    `--verbosity=1` shows where it came from as well.

    Args:
        define_flags: defines the flags of the command; the docstring of its module is the head of
            what --help prints.
        run: the command; reads `flags.FLAGS`.
        takes_arguments: whether `run` is given what follows a -- on the command line, as a list.
        takes_paths: whether `run` is given everything on the command line that is no flag.
    """

    def main(argv: Sequence[str]) -> None:
        try:
            with keep_nothing(flags.FLAGS):
                run(argv[1:]) if takes_arguments or takes_paths else run()
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except UserError as error:
            logging.debug("Where the error came from:", exc_info=True)
            sys.exit(f"error: {error}")

    module = sys.modules[define_flags.__module__]
    command = describe_command(module, names_defined_by(define_flags))

    def parse(argv: Sequence[str]) -> list[str]:
        return _parse(command, argv, takes_arguments=takes_arguments, takes_paths=takes_paths)

    try:
        app.run(main, flags_parser=parse)
    except BrokenPipeError:
        # Whoever read the output, `head` say, has left. Python would complain of that when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


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


def _fail(program: str, mistakes: Sequence[str]) -> NoReturn:
    """Ends the process with what is wrong."""
    if len(mistakes) == 1:
        message = f"error: {mistakes[0]}"
    else:
        lines = (f"\n  {mistake}" for mistake in mistakes)
        message = f"error: {len(mistakes)} mistakes on the command line:{''.join(lines)}"
    sys.exit(f"{message}\n`{program} --help` lists the flags.")
