"""Draws the way of the data: `python docs/pictures/data_flow.py` writes data_flow.png beside it."""

from __future__ import annotations

from pathlib import Path

from drawing import BLUE, GREEN, GREY, RED, YELLOW, Drawing

WIDTH, GAP, HEIGHT = 172, 26, 108
# Title, the modules below albert_tf/ that do it, colour; row by row.
ROWS = {
    "pretraining": (
        ("text files", ("data/corpus.py", "data/files.py"), GREY),
        ("pairs of segments", ("tokenization/", "data/segments.py", "data/masking.py"), BLUE),
        ("records", ("data/examples.py", "data/tfrecord.py", "data/beam.py"), BLUE),
        ("batches", ("data/batching.py", "data/online_masking.py", "training/input.py"), YELLOW),
        ("step", ("tasks/pretraining.py", "training/step.py", "training/trainer.py"), GREEN),
        ("checkpoints", ("checkpoints/", "evaluation.py", "run_log.py"), RED),
    ),
    "fine-tuning": (
        ("files of a task", ("data/glue.py", "data/custom.py", "data/squad.py"), GREY),
        (
            "token sequences",
            ("tokenization/", "data/text_features.py", "data/squad_features.py"),
            BLUE,
        ),
        ("batches", ("data/sequences.py", "data/length_batching.py"), YELLOW),
        ("step", ("tasks/classification.py", "training/step.py", "training/trainer.py"), GREEN),
        ("scores, best model", ("prediction/", "metrics/", "fine_tuning/"), RED),
        ("export", ("export/", "conversion/", "model_files/"), GREY),
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
