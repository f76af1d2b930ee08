"""Prints what a pretrained model predicts for masked tokens of texts.

Each prediction is printed with its probability. Then, the text is printed with the most probable
tokens filled in.

    albert_tf fill_mask --model_dir=mini --text='The capital of France is [MASK].'
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.config import BFLOAT16, FLOAT32
from albert_tf.data.errors import visible
from albert_tf.settings import TokenizerRules, required, setting


@dataclass(frozen=True, kw_only=True)
class FillMaskSettings(TokenizerRules):
    """Settings of `fill_mask`."""

    # Without a period, because absl appends "; repeat this option to ...".
    text: Sequence[str] | None = setting(None, "Data")("""
        Text with one or more [MASK] to fill in. Default: texts from the standard input, one per
        line""")
    model_dir: str = required("Model")("""
        Model of any supported format: a directory, a checkpoint, a released tar file, a TF-Hub
        URL, or a name such as base_v2 or mini (mini is part of albert_tf).""")
    precision: str = setting(FLOAT32, "Devices", choices=(FLOAT32, BFLOAT16))("""
        Precision of matrix products. bfloat16: for processors with bfloat16 instructions, and
        recent GPUs.""")
    top_k: int = setting(5, "Output", at_least=1)("Number of predictions to print per [MASK].")


def run(settings: FillMaskSettings) -> None:
    from albert_tf.pretraining.fill_mask import FillMask, read_model

    rules = {**settings.rules(), "precision": settings.precision}
    fill_mask = FillMask(*read_model(settings.model_dir, "--model_dir", **rules))
    # The standard input is processed line by line, so that it can be interactive.
    groups = [settings.text] if settings.text else ([t] for t in map(str.strip, sys.stdin) if t)
    for texts in groups:
        for text, blanks in zip(texts, fill_mask(texts, settings.top_k), strict=True):
            print(text)
            for candidates in blanks:
                print(
                    "  " + "  ".join(f"{visible(c.token)} {c.probability:.1%}" for c in candidates)
                )
            print(f"  {visible(blanks[0][0].sequence)}")


main = command(__name__, __doc__, Flags(FillMaskSettings), run, devices="all")
