"""Runs the command `albert_tf run_race`."""

from albert_tf.cli.run_race import main

if __name__ == "__main__":
    main()
