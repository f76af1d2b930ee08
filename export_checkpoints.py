"""Runs the command `albert_tf export_checkpoints`."""

from albert_tf.cli.export_checkpoints import main

if __name__ == "__main__":
    main()
