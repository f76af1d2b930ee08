"""Measures `TextClassifier`, compared with the command and with a pipeline of transformers.

    python -m benchmarks.text_classifier

Without --model, the classifier is mini with a random head. All classify the same texts of 3 to 60
words. For `run_classifier --predict_file` and for the same in Python, the time of a process with
its startup is measured. If transformers is installed, its pipeline and the classifier are also
timed without startup.
"""

import os
import random
import subprocess
import sys
import tempfile

try:
    import transformers
    import triton  # noqa: F401  PyTorch's: imported after TensorFlow it ends the process
except ImportError:
    transformers = None
from absl import app, flags

import albert_tf
from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.loading import read_contents
from benchmarks.timing import best_seconds

_MODEL = flags.DEFINE_string("model", None, "Directory of a classifier of single texts.")
_TEXTS = flags.DEFINE_integer("texts", 1000, "How many texts.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Timings of each; the best counts.", lower_bound=1)
_LENGTH = 128  # tokens of a sequence at most
_PROGRAM = """
import sys, albert_tf
with open(sys.argv[2]) as file:
    texts = file.read().splitlines()
albert_tf.TextClassifier.load(sys.argv[1], max_seq_length=int(sys.argv[3]))(texts)
"""


def random_texts(count: int) -> list[str]:
    """Texts of 3 to 60 words of the vocabulary."""
    source, tokens = random.Random(1), albert_tf.load_tokenizer("mini").tokens
    words = [token[1:] for token in tokens if token.startswith("▁") and token[1:].isalpha()]
    return [" ".join(source.choices(words, k=source.randint(3, 60))) for _ in range(count)]


def main(_: list[str]) -> None:
    """Prints texts a second, and ratios of times."""
    with tempfile.TemporaryDirectory() as folder:
        directory = _MODEL.value or os.path.join(folder, "classifier")
        if not _MODEL.value:
            model = albert_tf.AlbertForClassification.load("mini", labels=["no", "yes"])
            albert_tf.save(model, directory, max_seq_length=_LENGTH, pairs=False)
        texts, lines = random_texts(_TEXTS.value), os.path.join(folder, "texts.txt")
        with open(lines, "w") as file:
            file.write("\n".join(texts))
        command = [sys.executable, "-m", "albert_tf.cli.run_classifier"]
        command += [f"--output_dir={directory}", f"--max_seq_length={_LENGTH}"]
        command += [f"--predict_file={lines}", f"--predict_output_file={lines}.tsv"]
        program = [sys.executable, "-c", _PROGRAM, directory, lines, str(_LENGTH)]
        quiet = {"check": True, "stderr": subprocess.DEVNULL}
        classifier = albert_tf.TextClassifier.load(directory, max_seq_length=_LENGTH)
        runs = {
            "command": lambda: subprocess.run(command, **quiet),
            "Python": lambda: subprocess.run(program, **quiet),
            "TextClassifier": lambda: classifier(texts),
        }
        compared = [("Python", "command")]
        if transformers is not None:
            os.mkdir(exported := os.path.join(folder, "exported"))
            huggingface.write(exported, read_contents(directory)[0])
            classify = transformers.pipeline("text-classification", exported, device="cpu")
            limits = {"batch_size": 8, "truncation": True, "max_length": _LENGTH}
            runs["pipeline"] = lambda: classify(texts, top_k=None, **limits)
            compared.append(("TextClassifier", "pipeline"))
        runs["TextClassifier"]()  # traces
        took = best_seconds(runs, _ROUNDS.value)
    for name, value in took.items():
        print(f"{name}: {len(texts) / value:.0f} texts/s, {value:.2f} s")
    for name, other in compared:
        print(f"{name} / {other}: {took[name] / took[other]:.2f} of its time")


if __name__ == "__main__":
    app.run(main)
