"""Capacity of one target: sessions it carries, and the gain of a split on a saturated target."""
