"""Fit costs to a sweep's runs and predict its cells."""
