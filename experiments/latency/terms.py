"""Decoding options of every measurement, and the limit of its network's CPU share."""

from __future__ import annotations

from specwhisper.options import DecodingOptions

OPTIONS = (DecodingOptions.greedy(language="en"),)
HINT_SEED = 0  # of the errors of a given hint
MAX_NETWORK_SHARE = 0.05  # of a core; a busier network distorts the measurement
MAX_TRIES = 3  # then a run with a busier network is kept, but not counted


def simulated_models(target: str, draft: str) -> dict[str, str]:
    """Return the displayed names of simulated models: their costs are given, their text is a pair's."""
    return {"target": f"given cost, text of {target}", "draft": f"given cost, text of {draft}"}
