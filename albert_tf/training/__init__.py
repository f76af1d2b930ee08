"""Training: the step, the loop, devices, evaluation of checkpoints, and logs."""
