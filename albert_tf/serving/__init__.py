"""SavedModels, TF-Hub exports and LiteRT files."""
