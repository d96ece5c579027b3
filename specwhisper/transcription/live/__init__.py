"""Live audio: its pieces, their windows, and what a client sees."""
