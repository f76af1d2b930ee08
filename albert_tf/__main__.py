"""`python -m albert_tf`: the command `albert_tf`."""

from albert_tf.cli.main import main

if __name__ == "__main__":
    main()
