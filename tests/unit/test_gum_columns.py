"""The script that selects texts of the GUM treebank, with an invented treebank."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Documents of three genres, a multiword row, an empty node, and a sentence of one word.
TRAIN = """\
# newdoc id = GUM_bio_nobody
# sent_id = GUM_bio_nobody-1
1-2\tShe's\t_\t_
1\tShe\tshe\tPRON
2\t's\tbe\tAUX
2.1\tgone\tgo\tVERB

# newdoc id = GUM_fiction_dragon
1\tRoar\troar\tINTJ

# newdoc id = GUM_news_rain
1\tRain\train\tNOUN

# sent_id = GUM_news_rain-2
1\tIt\tit\tPRON
2\tpours\tpour\tVERB
3\t.\t.\tPUNCT

"""
DEV = "# newdoc id = GUM_fiction_castle\n1\tStay\tstay\tVERB\n2\t!\t!\tPUNCT\n\n"


def test_training_file_has_the_selected_genres_and_development_file_all(tmp_path):
    for part, text in (("train", TRAIN), ("dev", DEV)):
        (tmp_path / f"en_gum-ud-{part}.conllu").write_text(text)
    output = subprocess.check_output(
        [sys.executable, "-m", "benchmarks.gum_columns", f"--treebank={tmp_path}",
         f"--output_dir={tmp_path}/GUM"],
        cwd=ROOT,
        text=True,
    )  # fmt: skip
    train, dev = ((tmp_path / "GUM" / f"{part}.conll").read_text() for part in ("train", "dev"))
    assert train == "She\tPRON\n's\tAUX\n\nRain\tNOUN\n\nIt\tPRON\npours\tVERB\n.\tPUNCT\n\n"
    assert dev == "Stay\tVERB\n!\tPUNCT\n\n"
    assert "3 sentences, 6 words" in output
    assert "1 sentences, 2 words" in output
