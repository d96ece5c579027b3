"""Locators and replicas, without Ray."""
