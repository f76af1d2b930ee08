"""Shows what a pretrained model expects at the blanks of texts.

fill_mask --model_dir=mini --text='The capital of France is [MASK].'
"""

import sys

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.flag_groups import DATA, MODEL, OUTPUT, flag_group, set_units


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(DATA):
        flags.DEFINE_multi_string(
            "text",
            None,
            "A text with [MASK] where the model shall fill in. Not given: texts are read from the "
            "standard input, one a line.",
        )
    with flag_group(MODEL):
        flags.DEFINE_string(
            "model_dir",
            None,
            "The model, of any format: a directory, a checkpoint, a released tar file, a TF-Hub "
            "URL, or mini, which comes with albert_tf.",
            required=True,
        )
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Lower-case the text, as the model's training did. Not given: as the model says of "
            "itself.",
        )
    with flag_group(OUTPUT):
        flags.DEFINE_integer("top_k", 5, "Tokens to show for each blank.", lower_bound=1)
    set_units(top_k="tokens")


def run() -> None:
    """Prints each text and, for each of its blanks, a line of tokens with their probabilities."""
    # TensorFlow, which --help need not wait for.
    from albert_tf.cli.devices import log_devices
    from albert_tf.prediction.fill_mask import MaskFiller

    log_devices()
    values = flags.FLAGS
    lower_case = values.do_lower_case if values["do_lower_case"].present else None
    filler = MaskFiller(values.model_dir, lower_case)
    for text in values.text or filter(None, map(str.strip, sys.stdin)):
        print(text)
        for candidates in filler.fill(text, values.top_k):
            print("  " + "  ".join(f"{c.token} {c.probability:.1%}" for c in candidates))


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
