"""Tokens per second of a target with many clients, beside what the law of capacity predicts.

A forward pass with candidates takes a little longer than one without, and yields several tokens. So a target
whose drafts cost it nothing should write ``E t(1) / t(1 + gamma)`` times as many tokens a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

Facts = Mapping[str, Any]
SHARED = "four draft servers"  # how the crowd's sessions reach the target


class Law(NamedTuple):
    """The gain over target-only of a number of clients: predicted and measured."""

    clients: int
    predicted: float
    gain: float

    @property
    def share(self) -> float:
        """What is reached of the prediction."""
        return self.gain / self.predicted


def laws(facts: Facts) -> dict[str, list[Law]]:
    """Return the gains that `experiments.capacity` and `experiments.crowd` have measured."""
    real = [
        Law(each["num_sessions"], each["predicted"], each["decoding"]["value"])
        for each in facts["capacity"]["gains"]
        if each["arm"] == "full"
    ]
    runs = sorted(
        (run for run in facts["crowd"]["runs"] if run["where"] == SHARED), key=lambda run: run["num_sessions"]
    )
    scripted = []
    for num_sessions, found in groupby(runs, key=lambda run: run["num_sessions"]):
        here = list(found)
        # All sessions are in a pass, which takes the same time with candidates and without.
        alone = num_sessions / (here[0]["pass_ms"] / 1e3)
        scripted.append(
            Law(
                num_sessions,
                median(run["num_tokens"] for run in here),
                median(run["tokens_per_s"] for run in here) / alone,
            )
        )
    return {"base and tiny.en, one core": real, f"scripted, {runs[0]['pass_ms']:g} ms a pass": scripted}
