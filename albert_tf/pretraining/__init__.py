"""Text to records, and pretraining on them."""
