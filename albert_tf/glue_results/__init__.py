"""What fine-tuning on GLUE gave, over all tasks and seeds."""
