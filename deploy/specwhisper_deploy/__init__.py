"""Servers under Ray Serve: targets and draft servers that scale, their locators, and gateways."""
