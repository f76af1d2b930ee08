"""The command `albert_tf`, whose subcommands are the modules in `cli/`.

`albert_tf run_squad ...`, `python -m albert_tf run_squad ...` and
`python -m albert_tf.cli.run_squad ...` are equivalent.
"""

import ast
import difflib
import importlib
import sys
from importlib import resources

from albert_tf.version import __version__

NAME = "albert_tf"
COMMANDS = {
    "Everything": ("pretrain",),
    "Data": ("prepare_text", "train_sentencepiece", "create_pretraining_data"),
    "Training": (
        "run_pretraining",
        "run_classifier",
        "run_squad",
        "run_squad_v1",
        "run_squad_v2",
        "run_race",
        "run_token_classifier",
    ),
    "Models": (
        "inspect",
        "fill_mask",
        "convert_checkpoint",
        "export_checkpoints",
        "export_to_tfhub",
        "export_litert",
        "export_onnx",
    ),
    "Planning and comparing": ("check_accelerator", "run_ablations", "glue_results"),
}


def main() -> None:
    """Runs the command named by the first argument with the remaining arguments."""
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(help_text())
    name, *others = arguments
    if name in ("--help", "-h", "help"):
        print(help_text())
    elif name == "--version":
        print(NAME, __version__)
    elif name in _all_commands():
        sys.argv = [f"{NAME} {name}", *others]  # the name of the program in help and errors
        importlib.import_module(f"albert_tf.cli.{name}").main()
    else:
        sys.exit(f"error: {_mistake(name)} `{NAME} --help` lists the commands.")


def help_text() -> str:
    """Returns the list of commands with one line each."""
    width = max(map(len, _all_commands()))
    lines = [
        f"albert_tf {__version__}: ALBERT on TensorFlow 2.",
        "",
        f"usage: {NAME} COMMAND [--flag=value ...]",
        f"       {NAME} COMMAND --help      the flags of a command",
        f"       {NAME} --version",
    ]
    for title, names in COMMANDS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:{width}}  {summary(name)}" for name in names]
    return "\n".join(lines)


def summary(name: str) -> str:
    """Returns the first line of a command's docstring, without importing the module."""
    source = resources.files("albert_tf.cli").joinpath(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].replace("`", "")


def _all_commands() -> list[str]:
    return [name for names in COMMANDS.values() for name in names]


def _mistake(name: str) -> str:
    if name.startswith("-"):
        return f"The name of a command comes before its flags. Received: {name}."
    alike = difflib.get_close_matches(name.replace("-", "_").lower(), _all_commands(), n=1)
    return f"There is no command {name}." + (f" Did you mean {alike[0]}?" if alike else "")


if __name__ == "__main__":
    main()
