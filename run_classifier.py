"""Runs the command `albert_tf run_classifier`."""

from albert_tf.cli.run_classifier import main

if __name__ == "__main__":
    main()
