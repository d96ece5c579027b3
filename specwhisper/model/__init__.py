"""The models: checkpoints, decoding rules, the cached decoder and the two engines that run them."""
