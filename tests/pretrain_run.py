"""A small run of `pretrain`: its text, its command, and its output."""

import random
from pathlib import Path
from typing import Any

from tests.programs import CommandRun
from tests.small_model import ONE_BLOCK, small_config

LENGTH = 16


def sentence(draws: random.Random, words: list[str]) -> str:
    """Returns a sentence in which the first words of a list are frequent."""
    chosen = (words[int(len(words) * draws.random() ** 3)] for _ in range(draws.randint(4, 9)))
    return " ".join(chosen).capitalize() + "."


def documents(size: int = 205_000, seed: int = 1) -> list[str]:
    """Returns documents of invented words with at least `size` bytes in total."""
    draws = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bdgklmnprst" for vowel in "aeiou"]
    words = ["".join(draws.choices(syllables, k=draws.randint(1, 4))) for _ in range(3000)]
    made: list[str] = []
    while size > 0:
        made.append(" ".join(sentence(draws, words) for _ in range(draws.randint(10, 30))))
        size -= len(made[-1]) + 2
    return made


class PretrainRun(CommandRun):
    """A text of the smallest accepted size and a model of one layer."""

    script = "albert_tf/cli/pretrain.py"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.text = folder / "text.txt"
        self.text.write_text("\n\n".join(documents()))
        config = small_config(vocab_size=420, max_position_embeddings=32, **ONE_BLOCK)
        self.config = folder / "config.json"
        config.to_json_file(str(self.config))

    def flags(self, **changes: Any) -> dict[str, Any]:
        """Returns flags for three steps in a single stage of training."""
        return {
            "text": self.text,
            "output_dir": self.output,
            "albert_config_file": self.config,
            "max_seq_length": LENGTH,
            "num_train_steps": 3,
            "train_batch_size": 4,
            "precision": "float32",
            "num_workers": 1,
            "xla": False,
            **changes,
        }
