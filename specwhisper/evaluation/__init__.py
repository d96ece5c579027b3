"""How good and how fast: word error rates of the target alone against the pair, side by side."""
