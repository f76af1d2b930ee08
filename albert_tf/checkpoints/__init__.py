"""Weights in and out: one module a format, one name map each, one load report."""
