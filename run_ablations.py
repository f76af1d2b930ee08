"""Runs the command `albert_tf run_ablations`."""

from albert_tf.cli.run_ablations import main

if __name__ == "__main__":
    main()
