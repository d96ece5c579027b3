"""Decoding options of every measurement, and the limit of its network's CPU share."""

from __future__ import annotations

from specwhisper.options import DecodingOptions

OPTIONS = (DecodingOptions(language="en"),)
MAX_NETWORK_SHARE = 0.05  # of a core; a busier network distorts the measurement
MAX_TRIES = 3  # then a run with a busier network is kept, but not counted
