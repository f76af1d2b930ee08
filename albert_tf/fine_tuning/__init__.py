"""Fine-tuning: the flow that all jobs share, what each evaluates and applies, and their files."""
