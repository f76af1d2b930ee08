"""The model: layers, encoder, heads, losses."""
