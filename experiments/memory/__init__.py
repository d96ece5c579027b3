"""Memory over hours of audio."""
