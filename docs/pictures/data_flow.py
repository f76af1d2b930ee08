"""Draws the data flow. `python docs/pictures/data_flow.py` writes data_flow.png next to it."""

from __future__ import annotations

from pathlib import Path

from drawing import BLUE, GREEN, GREY, RED, YELLOW, Drawing

WIDTH, GAP, HEIGHT, STEP = 270, 90, 94, 118  # STEP: from one row to the next
# Title, modules in albert_tf/ and color of each box, from top to bottom.
COLUMNS = {
    "pretraining": (
        ("text files", ("pretraining/corpus.py", "data/files.py"), GREY),
        (
            "pairs of segments",
            ("tokenization/", "pretraining/instances.py", "pretraining/masking.py"),
            BLUE,
        ),
        (
            "records",
            ("pretraining/create_records.py", "data/tfrecord.py", "pretraining/beam.py"),
            BLUE,
        ),
        ("batches", ("pretraining/batching.py", "pretraining/masking.py"), YELLOW),
        ("step", ("pretraining/task.py", "training/step.py", "training/trainer.py"), GREEN),
        ("checkpoints", ("checkpoints/", "training/evaluation.py", "training/run_log.py"), RED),
    ),
    "fine-tuning": (
        (
            "files of a task",
            (
                "classification/data.py",
                "token_classification/data.py",
                "squad/data.py",
                "multiple_choice/data.py",
            ),
            GREY,
        ),
        (
            "token sequences",
            (
                "tokenization/",
                "token_classification/features.py",
                "squad/features.py",
                "multiple_choice/task.py",
            ),
            BLUE,
        ),
        ("batches", ("data/sequences.py", "finetuning/batches.py"), YELLOW),
        ("step", ("classification/task.py", "training/step.py", "training/trainer.py"), GREEN),
        (
            "scores, best model",
            ("finetuning/predictor.py", "squad/metrics.py", "finetuning/flow.py"),
            RED,
        ),
        ("export", ("classification/export.py", "serving/", "checkpoints/convert.py"), GREY),
    ),
}


def draw(path: str) -> None:
    """Draws both columns, and how a pretrained model gets from one into the other."""
    height = 6 * STEP + 24
    picture = Drawing(2 * WIDTH + GAP + 20, height)
    for number, (column, boxes) in enumerate(COLUMNS.items()):
        left = 10 + number * (WIDTH + GAP)
        middle = left + WIDTH / 2
        picture.label(middle, height - 16, column, size=12)
        for row, (title, modules, color) in enumerate(boxes):
            bottom = height - 32 - HEIGHT - row * STEP
            picture.box(left, bottom, WIDTH, HEIGHT, title, *modules, color=color, code=True)
            if row:
                picture.arrow((middle, bottom + STEP), (middle, bottom + HEIGHT))
    step, last = (height - 32 - HEIGHT / 2 - row * STEP for row in (3, 5))
    right = 10 + WIDTH
    picture.arrow((right, last + 20), (right + GAP, step))
    picture.arrow((right, last), (right + GAP, last))
    picture.label(right + GAP / 2, step + 24, "weights,\nany format", size=10)
    picture.save(path)


if __name__ == "__main__":
    draw(str(Path(__file__).with_suffix(".png")))
