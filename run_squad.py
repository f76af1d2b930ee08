"""Answers questions about texts with a part of the text: the command albert_tf.cli.run_squad."""

if __name__ == "__main__":
    # Not above: the processes that make features import this file, and need no TensorFlow.
    from albert_tf.cli.run_squad import main

    main()
