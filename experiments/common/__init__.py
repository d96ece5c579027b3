"""Code that experiments and tests share."""
