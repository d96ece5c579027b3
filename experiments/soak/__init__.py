"""Many short sessions, cut off at any moment, and some long ones: what they leave behind in the servers."""
