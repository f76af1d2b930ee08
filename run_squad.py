"""Runs the command `albert_tf run_squad`."""

from albert_tf.cli.run_squad import main

if __name__ == "__main__":
    main()
