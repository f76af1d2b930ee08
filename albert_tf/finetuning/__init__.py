"""Code that all fine-tuning jobs share."""
