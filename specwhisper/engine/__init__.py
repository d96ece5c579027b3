"""Schedulers that run models for many sessions at once: verifier, drafter, and both as a pair."""
