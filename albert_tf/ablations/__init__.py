"""The paper's comparisons: models that differ in one thing, their runs, table and picture."""
