"""Draws the model: `python docs/pictures/architecture.py` writes architecture.png beside it."""

from __future__ import annotations

from pathlib import Path

from drawing import BLUE, GREEN, GREY, RED, YELLOW, Drawing

HEADS = (  # what a head is for, what it gives, what it is given
    ("masked LM", "logits [B, P, V], word embeddings as weights", "tokens"),
    ("spans (SQuAD 1.1)", "start and end logits [B, S]", "tokens"),
    ("beams of spans (SQuAD 2.0)", "starts, ends, whether there is an answer", "tokens"),
    ("sentence order", "logits [B, 2]", "pooled"),
    ("classification, regression", "logits [B, K]", "pooled"),
    ("multiple choice", "logits [B, C]", "pooled"),
)


def draw(path: str) -> None:
    """Draws embeddings, the shared block and the heads, with shapes."""
    picture = Drawing(1180, 470)
    picture.box(10, 190, 130, 90, "inputs", "input_ids", "input_mask", "segment_ids", code=True)
    picture.label(75, 172, "int32 [B, S]")
    picture.arrow((140, 235), (170, 235))
    picture.box(
        170,
        175,
        150,
        120,
        "embeddings",
        "word [V, E]",
        "+ position + segment",
        "layer norm",
        "dropout",
        color=BLUE,
    )
    picture.label(245, 157, "[B, S, E]")
    picture.arrow((320, 235), (350, 235))
    picture.box(350, 200, 90, 70, "E to H", "dense [E, H]", color=BLUE)
    picture.label(395, 182, "[B, S, H]")
    picture.arrow((440, 245), (480, 330))

    picture.frame(465, 75, 225, 330)
    picture.label(577, 389, "one block, run L times", size=10)
    picture.box(
        480, 290, 165, 80, "self-attention", "N heads of D = H / N", "dense [H, H]", color=GREEN
    )
    picture.arrow((562, 290), (562, 262))
    picture.box(480, 236, 165, 26, "add, layer norm", color=GREY)
    picture.arrow((562, 236), (562, 216))
    picture.box(
        480, 136, 165, 80, "feed-forward", "dense [H, F], GELU", "dense [F, H]", color=GREEN
    )
    picture.arrow((562, 136), (562, 116))
    picture.box(480, 90, 165, 26, "add, layer norm", color=GREY)
    picture.arrow((645, 108), (645, 330), bend=0.3)
    picture.label(577, 52, "the same weights every time:\nparameters do not grow with L")

    picture.arrow((690, 295), (715, 326))
    picture.box(715, 300, 140, 52, "sequence output", "[B, S, H]", color=YELLOW)
    picture.arrow((785, 300), (785, 176))
    picture.box(715, 110, 140, 66, "pooled output", "tanh(dense of [CLS])", "[B, H]", color=YELLOW)

    sources = {"tokens": (855, 326), "pooled": (855, 143)}
    for number, (name, outputs, source) in enumerate(HEADS):
        bottom = 395 - 72 * number
        picture.box(890, bottom, 280, 56, name, outputs, color=RED)
        picture.arrow(sources[source], (890, bottom + 28))
    picture.label(
        245,
        80,
        "base: V 30,000  E 128  H 768  L 12  N 12  F 3,072\n"
        "11.7 million parameters (BERT-base: 108)",
        size=9,
    )
    picture.save(path)


if __name__ == "__main__":
    draw(str(Path(__file__).with_suffix(".png")))
