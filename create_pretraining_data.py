"""Runs the command `albert_tf create_pretraining_data`."""

from albert_tf.cli.create_pretraining_data import main

if __name__ == "__main__":
    main()
