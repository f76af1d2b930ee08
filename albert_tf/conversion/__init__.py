"""From one format of a model to another, proved by what the result computes."""
