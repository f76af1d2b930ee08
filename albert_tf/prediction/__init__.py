"""What a trained model says: of sequences, texts, questions, and at masks."""
