"""Tests of experiments.latency."""
