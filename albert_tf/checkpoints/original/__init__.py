"""Checkpoints and directories of the original release."""
