"""Draws the data flow. `python docs/pictures/data_flow.py` writes data_flow.png next to it."""

from __future__ import annotations

from pathlib import Path

from drawing import BLUE, GREEN, GREY, RED, YELLOW, Drawing

WIDTH, GAP, HEIGHT = 248, 26, 122
# Title, modules in albert_tf/ and color of each box, row by row.
ROWS = {
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
        ("batches", ("data/sequences.py", "finetuning/task.py"), YELLOW),
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
    """Draws both rows, and how a pretrained model gets from one into the other."""
    picture = Drawing(6 * WIDTH + 5 * GAP + 20, 2 * HEIGHT + 150)
    bottoms = {}
    for number, (row, boxes) in enumerate(ROWS.items()):
        bottom = bottoms[row] = 10 + (1 - number) * (HEIGHT + 90)
        picture.label(12, bottom + HEIGHT + 17, row, size=11, align="left")
        for place, (title, modules, color) in enumerate(boxes):
            left = 10 + place * (WIDTH + GAP)
            picture.box(left, bottom, WIDTH, HEIGHT, title, *modules, color=color, code=True)
            if place:
                picture.arrow((left - GAP, bottom + HEIGHT / 2), (left, bottom + HEIGHT / 2))
    top, below = bottoms["pretraining"], bottoms["fine-tuning"] + HEIGHT
    step = 10 + 3.5 * WIDTH + 3 * GAP
    last = 10 + 5.5 * WIDTH + 5 * GAP
    picture.arrow((last - 60, top), (step + 40, below))
    picture.arrow((last, top), (last, below))
    picture.label(step + 30, (top + below) / 2 + 12, "--init_checkpoint, any format", align="right")
    picture.save(path)


if __name__ == "__main__":
    draw(str(Path(__file__).with_suffix(".png")))
