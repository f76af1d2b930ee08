"""Goes the whole way from text to a published model, in a few minutes.

It takes texts that come with Python, learns a vocabulary, makes records, pretrains a tiny model,
publishes it, evaluates what was published and fills in blanks with it. In the end mini, the model
that comes with albert_tf, learns to tell which chapter of Python's documentation a text is from.

    demo --output_dir=demo_output
"""

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.flag_groups import DATA, OUTPUT, TRAINING, flag_group, set_units


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(DATA):
        flags.DEFINE_integer(
            "max_documents",
            None,
            "Documents of the corpus. Not given: all of them.",
            lower_bound=2,
        )
        flags.DEFINE_integer("vocab_size", 1000, "Pieces of the vocabulary.", lower_bound=1)
    with flag_group(TRAINING):
        flags.DEFINE_integer("num_train_steps", 1500, "Steps of pretraining.", lower_bound=1)
        flags.DEFINE_integer(
            "num_fine_tuning_steps",
            160,
            "Steps of fine-tuning the classifier at the end; 0 leaves it out.",
            lower_bound=0,
        )
    with flag_group(OUTPUT):
        flags.DEFINE_string("output_dir", "demo_output", "Local directory of everything it writes.")
    set_units(
        max_documents="documents",
        vocab_size="pieces",
        num_train_steps="steps",
        num_fine_tuning_steps="steps",
    )


def run() -> None:
    """Runs the demo as the flags say."""
    # TensorFlow, which --help need not wait for.
    from albert_tf.cli.devices import log_devices
    from albert_tf.tools.demo import run_demo

    log_devices()
    values = flags.FLAGS
    run_demo(
        values.output_dir,
        num_train_steps=values.num_train_steps,
        vocab_size=values.vocab_size,
        max_documents=values.max_documents,
        num_fine_tuning_steps=values.num_fine_tuning_steps,
    )


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
