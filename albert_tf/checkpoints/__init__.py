"""Models on disk: a module or folder for each format, one map of names each, one load report."""
