"""What holds for every measurement: how recordings are decoded, and how busy a network may be."""

from __future__ import annotations

from specwhisper.options import DecodingOptions

OPTIONS = (DecodingOptions(language="en"),)
MAX_NETWORK_SHARE = 0.05  # of a core; a network that works harder is part of what is measured
MAX_TRIES = 3  # before a run in which it did is kept as one that does not count
