"""Live audio: its windows, its text and what is stable of it."""
