"""Describes a path: a model of any format, records or a tokenizer.

For a model, it prints format, configuration, parameters, tokenizer and task. Several paths are
described one after the other. With a model or tokenizer as another path, records are shown as
pieces. The command has no flags.

    albert_tf inspect mini

    albert_tf inspect mrpc/model.ckpt-best records/train.tfrecord
"""

from collections.abc import Sequence

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.data.errors import UserError
from albert_tf.settings import Settings


def run(settings: Settings, paths: Sequence[str]) -> None:
    if not paths:
        raise UserError(
            "Pass a path: python -m albert_tf.cli.inspect PATH. It may be a model of any format, "
            "a checkpoint, an exported model, a file of records, a tokenizer or a configuration."
        )
    from albert_tf.tools.inspect import compare_vocabularies, describe

    for number, path in enumerate(paths):
        if number:
            print()
        for line in describe(path):
            print(line, flush=True)
    for number, line in enumerate(compare_vocabularies(paths)):
        print("\n" * (not number) + line)


main = command(__name__, __doc__, Flags(Settings), run, takes_paths=True, devices="cpu")
