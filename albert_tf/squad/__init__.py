"""Questions to spans of a passage: SQuAD 1.1 and 2.0."""
