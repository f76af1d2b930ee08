"""Prints what a pretrained model predicts for masked tokens of texts.

Each prediction is printed with its probability.

    albert_tf fill_mask --model_dir=mini --text='The capital of France is [MASK].'
"""

import sys

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import LOWER_CASE, Flag, Groups, lower_case_from_flags
from albert_tf.data.errors import visible

FLAGS: Groups = {
    "Data": {
        # Without a period, because absl appends "; repeat this option to ...".
        Flag("text", list): "Text with one or more [MASK] to fill in. Default: texts from the "
        "standard input, one per line",
    },
    "Model": {
        Flag("model_dir", required=True): "Required. Model of any supported format: a directory, a "
        "checkpoint, a released tar file, a TF-Hub URL, or a name such as base_v2 or mini (mini is "
        "part of albert_tf).",
        **LOWER_CASE,
    },
    "Output": {Flag("top_k", 5, at_least=1): "Number of predictions to print per [MASK]."},
}


def run() -> None:
    from albert_tf.pretraining.fill_mask import FillMask, read_model

    values = flags.FLAGS
    fill_mask = FillMask(
        *read_model(values.model_dir, "--model_dir", lower_case_from_flags(values))
    )
    # The standard input is processed line by line, so that it can be interactive.
    groups = [values.text] if values.text else ([t] for t in map(str.strip, sys.stdin) if t)
    for texts in groups:
        for text, blanks in zip(texts, fill_mask(texts, values.top_k), strict=True):
            print(text)
            for candidates in blanks:
                print(
                    "  " + "  ".join(f"{visible(c.token)} {c.probability:.1%}" for c in candidates)
                )


main = command(__name__, __doc__, FLAGS, run, devices="all")
