"""Texts to labels or numbers: GLUE's tasks and custom tables."""
