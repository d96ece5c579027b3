"""Live audio."""
