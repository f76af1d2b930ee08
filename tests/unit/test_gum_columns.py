"""The script that selects texts of the GUM treebank, with an invented treebank."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Three genres, a multiword row and an empty node.
TRAIN = """\
# newdoc id = GUM_bio_nobody
# sent_id = GUM_bio_nobody-1
1-2\tShe's\t_\t_\t_
1\tShe\tshe\tPRON\t_
2\t's\tbe\tAUX\t_
2.1\tgone\tgo\tVERB\t_

# newdoc id = GUM_fiction_dragon
1\tRoar\troar\tINTJ\t_

# newdoc id = GUM_news_rain
1\tRain\train\tNOUN\t_

# sent_id = GUM_news_rain-2
1\tIt\tit\tPRON\t_
2\tpours\tpour\tVERB\t_
3\t.\t.\tPUNCT\t_

"""
DEV = "# newdoc id = GUM_fiction_castle\n1\tStay\tstay\tVERB\t_\n2\t!\t!\tPUNCT\t_\n\n"


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
    assert "train.conll: 6 words" in output
    assert "dev.conll: 2 words" in output
