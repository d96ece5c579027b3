"""The benchmarks and the training of the demo pair."""
