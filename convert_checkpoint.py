"""Converts a model between formats: the command albert_tf.cli.convert_checkpoint."""

from albert_tf.cli.convert_checkpoint import main

if __name__ == "__main__":
    main()
