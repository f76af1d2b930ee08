"""Model formats: one module each, and the table that chooses between them."""
