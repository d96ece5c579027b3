"""Text models as draft and target: the same engines, with prompts for audio."""
