"""What Python costs a target with many sessions, by session, forward pass and message."""
