"""What the jobs of fine-tuning share."""
