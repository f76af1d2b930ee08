"""Runs commands in a terminal and draws them with all of their output, as `session.svg`.

The directory must contain `train.conll` and `dev.conll`, here the named entities of WNUT 2017:

    PYTHONPATH=. python docs/pictures/session.py WNUT17
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

COMMANDS = (
    """\
albert_tf fill_mask --model_dir=mini --top_k=3 --text="They won the gold [MASK] in 1936."
""",
    """\
albert_tf run_token_classifier --albert_hub_module_handle=mini --do_train --do_eval \\
    --train_file=train.conll --dev_file=dev.conll --class_weights=O=0.2 \\
    --max_seq_length=64 --log_steps=214 --save_checkpoints_steps=214 --output_dir=names
""",
    """\
python
import albert_tf
tag = albert_tf.TokenClassifier.load("names")
for entity in tag("I met Emma Watson in Paris last week.").entities:
    print(entity.type, entity.text)
""",
)
MOST_COLUMNS = 100
ROOT = Path(__file__).parents[2]

PAPER, FRAME, TEXT, DIM, PROMPT, RESULT = (
    "#161b22", "#57606a", "#e6edf3", "#9da7b3", "#7ee787", "#ffd479",
)  # fmt: skip
CHARACTER, LINE, MARGIN, BAR, SIZE = 9.0, 21, 18, 34, 15


def run(command: str, folder: str) -> list[str]:
    """Runs a command and returns all lines that it prints.

    The lines after `python` are its standard input.
    """
    first, _, others = command.partition("\n")
    program, text = (first, others) if first == "python" else (command, "")
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=folder,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout.replace(f"{ROOT}/", "").splitlines()


def svg(lines: list[tuple[str, str]]) -> str:
    """Returns a picture of a terminal with its own background.

    Args:
        lines: color and text.
    """
    width = CHARACTER * MOST_COLUMNS + 2 * MARGIN
    height = BAR + LINE * len(lines) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" font-size="{SIZE}" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace">',
        f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="10" '
        f'fill="{PAPER}" stroke="{FRAME}"/>',
        *(f'<circle cx="{MARGIN + 4 + 18 * number}" cy="17" r="5" fill="{FRAME}"/>'
          for number in range(3)),
    ]  # fmt: skip
    for number, (color, text) in enumerate(lines):
        if not text:
            continue
        assert len(text) <= MOST_COLUMNS, text
        y = BAR + LINE * (number + 0.75)
        # The length makes the picture independent of the fonts that are installed.
        parts.append(
            f'<text x="{MARGIN}" y="{y:g}" fill="{color}" xml:space="preserve" '
            f'textLength="{CHARACTER * len(text):g}">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def main(folder: str) -> None:
    """Runs all commands and writes the picture."""
    lines: list[tuple[str, str]] = []
    for command in COMMANDS:
        first, *others = command.splitlines()
        if first == "python":
            others = [f"{'...' if line[0] == ' ' else '>>>'} {line}" for line in others]
        lines += [(PROMPT, f"$ {first}"), *((TEXT, line) for line in others)]
        lines += [(RESULT, line) for line in run(command, folder)]
        lines.append((TEXT, ""))
    Path(__file__).with_suffix(".svg").write_text(svg(lines[:-1]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
