"""Goes the whole way from text to a published model, in a few minutes."""

from absl import flags

from albert_tf.cli.command import run_command


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    flags.DEFINE_string("output_dir", "demo_output", "Local directory of everything it writes.")
    flags.DEFINE_integer("num_train_steps", 1500, "Steps of pretraining.", lower_bound=1)
    flags.DEFINE_integer(
        "max_documents", None, "Documents of the corpus, if not all of them.", lower_bound=2
    )
    flags.DEFINE_integer("vocab_size", 1000, "Pieces of the vocabulary.", lower_bound=1)


def run() -> None:
    """Runs the demo as the flags say."""
    from albert_tf.demo import DemoSettings, run_demo  # TensorFlow, which --help need not wait for

    values = flags.FLAGS
    settings = DemoSettings(
        output_dir=values.output_dir,
        num_train_steps=values.num_train_steps,
        max_documents=values.max_documents,
        vocab_size=values.vocab_size,
    )
    run_demo(settings)


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
