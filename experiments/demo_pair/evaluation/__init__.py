"""Measure exported models and write their model card."""
