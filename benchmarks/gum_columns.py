"""Selects the texts of the GUM treebank that docs/results.md uses, as files in columns.

    python -m benchmarks.gum_columns --treebank=UD_English-GUM --output_dir=GUM

--treebank contains en_gum-ud-train.conllu and en_gum-ud-dev.conllu of UD English GUM 2.16
(https://github.com/UniversalDependencies/UD_English-GUM, branch r2.16). The command writes a word
and its part of speech (UPOS) per line: train.conll with the training documents of --genres, and
dev.conll with all documents of the development part. Comments, multiword rows and empty-node rows
are omitted.
"""

import os
from collections.abc import Sequence

from absl import app, flags

_TREEBANK = flags.DEFINE_string("treebank", None, "Directory of the treebank.", required=True)
_GENRES = flags.DEFINE_list("genres", "bio,interview,news,voyage", "Genres of train.conll.")
_OUTPUT = flags.DEFINE_string("output_dir", None, "Directory of the files.", required=True)


def columns(lines: Sequence[str], genres: Sequence[str] = ()) -> list[str]:
    """Returns words with labels, separated by a tab, and an empty line after each sentence.

    Args:
        lines: a CoNLL-U file. Documents have ids such as `GUM_news_crane`.
        genres: the second parts of the ids of the documents to select. Empty selects all.
    """
    kept: list[str] = []
    selected = not genres
    for line in lines:
        cells = line.rstrip("\n").split("\t")
        if line.startswith("# newdoc id = "):
            selected = not genres or line.split("_")[1] in genres
        elif selected and cells[0].isdigit():
            kept.append(f"{cells[1]}\t{cells[3]}")
        elif kept and kept[-1] and not line.strip():
            kept.append("")
    return kept


def main(arguments: Sequence[str]) -> None:
    """Writes train.conll and dev.conll, and prints their numbers of sentences and words."""
    del arguments
    os.makedirs(_OUTPUT.value, exist_ok=True)
    for part, genres in (("train", _GENRES.value), ("dev", ())):
        source = os.path.join(_TREEBANK.value, f"en_gum-ud-{part}.conllu")
        with open(source, encoding="utf-8") as file:
            rows = columns(file.readlines(), genres)
        target = os.path.join(_OUTPUT.value, f"{part}.conll")
        with open(target, "w", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in rows)
        print(f"{target}: {rows.count('')} sentences, {len(rows) - rows.count('')} words")


if __name__ == "__main__":
    app.run(main)
