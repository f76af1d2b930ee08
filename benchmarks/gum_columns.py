"""Selects the texts of the GUM treebank that docs/results.md uses, as files in columns.

    python -m benchmarks.gum_columns --treebank=UD_English-GUM --output_dir=GUM

--treebank contains release 2.16 of UD English GUM, the branch r2.16 of
https://github.com/UniversalDependencies/UD_English-GUM. The command writes train.conll with some
genres of the training part, and dev.conll with the whole development part: one word with its part
of speech (UPOS) per line, and an empty line after each sentence.
"""

import os
from collections.abc import Sequence

from absl import app, flags

_TREEBANK = flags.DEFINE_string("treebank", None, "Directory of the treebank.", required=True)
_OUTPUT = flags.DEFINE_string("output_dir", None, "Directory of the files.", required=True)
_GENRES = ("bio", "interview", "news", "voyage")  # in the ids of documents: GUM_news_crane


def main(arguments: Sequence[str]) -> None:
    """Writes both files, and prints their numbers of words."""
    del arguments
    os.makedirs(_OUTPUT.value, exist_ok=True)
    for part in ("train", "dev"):
        rows: list[str] = []
        selected = False
        with open(f"{_TREEBANK.value}/en_gum-ud-{part}.conllu", encoding="utf-8") as file:
            for line in file:
                cells = line.split("\t")
                if line.startswith("# newdoc id = "):
                    selected = part == "dev" or line.split("_")[1] in _GENRES
                elif selected and cells[0].isdigit():  # no multiword row, no empty node
                    rows.append(f"{cells[1]}\t{cells[3]}\n")
                elif selected and not line.strip():
                    rows.append("\n")
        with open(f"{_OUTPUT.value}/{part}.conll", "w", encoding="utf-8") as file:
            file.writelines(rows)
        words = sum(row != "\n" for row in rows)
        print(f"{part}.conll: {words} words")


if __name__ == "__main__":
    app.run(main)
