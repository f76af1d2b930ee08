"""Fine-tunes and applies a token classifier: the command albert_tf.cli.run_token_classifier."""

from albert_tf.cli.run_token_classifier import main

if __name__ == "__main__":
    main()
