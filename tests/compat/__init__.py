"""Tests that parts of the previous release and of this one work together."""
