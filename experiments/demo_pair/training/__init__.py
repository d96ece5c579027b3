"""Train the target and distil its drafts."""
