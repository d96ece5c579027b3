"""Compare word error rates and times of the target alone with the pair."""
