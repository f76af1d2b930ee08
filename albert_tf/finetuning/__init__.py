"""What all fine-tuning jobs share."""
