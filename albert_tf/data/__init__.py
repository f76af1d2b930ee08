"""Text to features: readers, tokenized examples and TFRecord files. Knows no model."""
