"""Tools around the jobs: comparisons, tables, a look at files, the demo."""
