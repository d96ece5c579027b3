"""Text models as draft and target: the same engines, with a prompt in the place of audio."""
