"""Records how seqeval and conlleval.pl count the entities of random, often invalid, labels.

    PYTHONPATH=SEQEVAL python tests/unit/token_classification/record_conlleval.py

Needs Perl, and the unpacked source archive of seqeval 1.2.2 as SEQEVAL, whose `tests/conlleval.pl`
is the script of CoNLL (version 2004-01-26). It does not support `S-`, so IOBES is only counted by
seqeval. Writes `conlleval.json`.
"""

import json
import random
import re
import subprocess
from pathlib import Path

RECORDED = Path(__file__).with_name("conlleval.json")
PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
TYPES = "LOC", "geo-x", "PER"


def random_labels(rng: random.Random, prefixes: str, length: int) -> list[str]:
    labels, kind = [], TYPES[0]
    for _ in range(length):
        kind = kind if rng.random() < 0.6 else rng.choice(TYPES)
        labels.append(f"{rng.choice(prefixes)}-{kind}" if rng.random() < 0.75 else "O")
    return labels


def main() -> None:
    import seqeval
    from seqeval.metrics.sequence_labeling import get_entities

    script = Path(seqeval.__file__).parents[1] / "tests" / "conlleval.pl"
    rng, cases = random.Random(20), []
    for scheme, prefixes in PREFIXES.items():
        for _ in range(8):
            lengths = [rng.randrange(1, 14) for _ in range(4)]
            gold = [random_labels(rng, prefixes, length) for length in lengths]
            predicted = [
                [label if rng.random() < 0.6 else random_labels(rng, prefixes, 1)[0] for label in s]
                for s in gold
            ]
            case = {
                "scheme": scheme,
                "gold": [" ".join(labels) for labels in gold],
                "predicted": [" ".join(labels) for labels in predicted],
                "seqeval": [
                    [(name, start, end + 1) for name, start, end in get_entities(labels)]
                    for labels in predicted
                ],
            }
            if scheme != "IOBES":
                case["conlleval"] = conlleval(script, gold, predicted)
            cases.append(case)
    RECORDED.write_text(
        "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n"
    )


def conlleval(script: Path, gold: list[list[str]], predicted: list[list[str]]) -> dict:
    """Returns the counts and percentages that conlleval.pl prints."""
    text = "\n".join(
        "".join(f"w {a} {b}\n" for a, b in zip(*pair, strict=True))
        for pair in zip(gold, predicted, strict=True)
    )
    out = subprocess.run(
        ["perl", script], input=text, capture_output=True, text=True, check=True
    ).stdout
    wanted, found, right = re.search(r"with (\d+) .*found: (\d+) .*correct: (\d+)", out).groups()
    rows = re.findall(r"(\S+): +precision: +(\S+)%; recall: +(\S+)%; FB1: +(\S+)", out)
    total = re.search(r"accuracy: +(\S+)%; precision: +(\S+)%; recall: +(\S+)%; FB1: +(\S+)", out)
    return {
        "counts": [int(wanted), int(found), int(right)],
        "total": [float(value) for value in total.groups()],
        "types": {name: [float(value) for value in values] for name, *values in rows},
    }


if __name__ == "__main__":
    main()
