"""Files: their links, their damage, and FFmpeg's formats."""
