"""Scores of whole evaluations, one module a kind of task; NumPy in, numbers out."""
