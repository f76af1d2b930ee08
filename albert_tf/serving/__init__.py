"""SavedModels, TF-Hub exports, LiteRT and ONNX files."""
