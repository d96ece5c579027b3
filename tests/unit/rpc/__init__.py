"""The wire, settings, logs and other services of all programs."""
