"""Fine-tunes and applies a text classifier: the command albert_tf.cli.run_classifier."""

from albert_tf.cli.run_classifier import main

if __name__ == "__main__":
    main()
