"""The model: decoder, cache, kernels, rules, sampling."""
