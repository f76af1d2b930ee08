"""How much memory the training of a configuration takes."""
