"""The client against real servers."""
