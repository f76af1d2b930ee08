"""A small token classifier: its sentences, its model, and its command."""

import random
from pathlib import Path
from typing import Any

import albert_tf
from albert_tf.token_classification.run import TokenClassificationJob
from tests.fine_tuning_run import FineTuningRun

# Parts of sentences: words with their labels.
PARTS = (
    (("the", "O"), ("dog", "B-animal")),
    (("a", "O"), ("good", "B-animal"), ("cat", "I-animal")),
    (("on", "O"), ("this", "B-place"), ("mat", "I-place")),
    (("it", "O"), ("was", "O"), ("very", "O")),
    (("and", "O"),),
)
COUNTS = {"train": 60, "dev": 17, "test": 13}


class TokenRun(FineTuningRun):
    """Files with tagged sentences, a model, and `run_token_classifier.py` with them."""

    script = "run_token_classifier.py"
    job, settings = TokenClassificationJob, albert_tf.TokenClassificationSettings
    function = albert_tf.run_token_classification

    def __init__(self, folder: Path, golden: Path, **config: Any) -> None:
        super().__init__(folder, golden, **config)
        for seed, (split, count) in enumerate(COUNTS.items()):
            write_conll(folder / f"{split}.conll", tagged_sentences(count, seed))

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for six steps with a checkpoint every two steps."""
        data = {f"{split}_file": self.folder / f"{split}.conll" for split in COUNTS}
        steps = {"train_step": 6, "warmup_step": 1, "eval_batch_size": 4, "predict_batch_size": 3}
        return super().flags(**{**data, **steps, **changes})


def tagged_sentences(count: int, seed: int) -> list[list[tuple[str, str]]]:
    source = random.Random(seed)
    return [
        [word for part in source.choices(PARTS, k=source.randint(1, 8)) for word in part]
        for _ in range(count)
    ]


def write_conll(path: Path, rows: list[list[tuple[str, str]]]) -> Path:
    blocks = ("".join(f"{word} {label}\n" for word, label in row) for row in rows)
    path.write_text("-DOCSTART- O\n\n" + "\n".join(blocks))
    return path
