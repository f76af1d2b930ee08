"""Runs the command `albert_tf export_to_tfhub`."""

from albert_tf.cli.export_to_tfhub import main

if __name__ == "__main__":
    main()
