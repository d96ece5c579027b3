"""Models for tests and experiments: random weights, published shapes, and scripted text without weights."""
