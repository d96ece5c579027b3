"""The training of the demo pair."""
