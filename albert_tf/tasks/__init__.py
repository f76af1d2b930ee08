"""One module a job: its data, model, loss and score behind the Task protocol."""
