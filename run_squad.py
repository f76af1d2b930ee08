"""Answers questions about texts with a part of the text: the command albert_tf.cli.run_squad."""

from albert_tf.cli.run_squad import main

if __name__ == "__main__":
    main()
