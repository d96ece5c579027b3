"""Engines that run models for many sessions: verifier, drafter, and a pair."""
