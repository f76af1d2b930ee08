"""Models for programs that serve them: SavedModels, TF-Hub, LiteRT."""
