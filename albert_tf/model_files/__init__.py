"""The files a model consists of: where they lie, and what they say."""
