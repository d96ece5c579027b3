"""Settings, logs and other services of all programs."""
