"""How a command starts and ends; imports nothing that takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from absl import app, flags, logging

# What a user can put right: shown as a message, without the stack of the program.
UserError = (ValueError, OSError)


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
        define_flags: defines the flags of the command.
        run: the command; reads `flags.FLAGS`.
        takes_arguments: whether `run` is given what follows a -- on the command line, as a list.
        takes_paths: whether `run` is given everything on the command line that is no flag.
    """

    def main(argv: Sequence[str]) -> None:
        if len(argv) > 1 and not takes_paths and not (takes_arguments and "--" in sys.argv):
            raise app.UsageError(f"Unknown arguments: {' '.join(argv[1:])}")
        try:
            run(argv[1:]) if takes_arguments or takes_paths else run()
        except UserError as error:
            logging.debug("Where the error came from:", exc_info=True)
            sys.exit(f"error: {error}")

    others = set(flags.FLAGS)
    define_flags()
    for name in set(flags.FLAGS) - others:
        # --help lists what belongs to the program that was started, and nothing of other modules.
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
    app.run(main)
