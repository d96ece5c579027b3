"""``specwhisper tune``: a link and a pair, measured, and the mode that fits."""
