"""Voice agents' speech recognition, unmodified, on the demo pair: text, and latency of final text."""
