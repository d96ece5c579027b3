"""From any audio to canonical samples and features, without torch or network."""
