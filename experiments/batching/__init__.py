"""A draft's gain over the number of recordings that are transcribed side by side."""
