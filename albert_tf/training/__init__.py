"""Training: the step, the loop around it, and what both need."""
