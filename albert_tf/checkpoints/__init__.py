"""Loads, saves and converts models: one module or folder per format."""
