"""Models in the formats of the programs that serve them."""
