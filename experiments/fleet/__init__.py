"""Crowds and mixed fleets: each session gets one target's text, and none fails without need."""
