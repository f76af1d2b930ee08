"""One module per command: its flags, and a function that runs it."""
