"""Runs the command `albert_tf convert_checkpoint`."""

from albert_tf.cli.convert_checkpoint import main

if __name__ == "__main__":
    main()
