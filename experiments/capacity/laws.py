"""Tokens per second of a target with many clients, beside what the law of capacity predicts.

A forward pass with candidates takes a little longer than one without, and yields several tokens. So a target
whose drafts cost it nothing should write ``E t(1) / t(1 + gamma)`` times as many tokens a second. Here ``E``
is the yield of all passes and ``t`` their mean time, since in ``full`` some have no candidates of the draft.
Times are those of passes with as many sessions as were in them, per session.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

import numpy as np

Facts = Mapping[str, Any]
PassTimes = Mapping[tuple[int, int], float]  # seconds, by sessions and the tokens of each
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
    """Return the gains that `ladder` and `crowd` of `experiments.capacity` have measured."""
    real = [
        Law(each["num_sessions"], predicted(facts["capacity"], each), each["decoding"]["value"])
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


def predicted(capacity: Facts, gain: Facts) -> float:
    """Return the gain over target-only that the law predicts, from the figures of the ladder."""
    here = [
        each
        for each in capacity["outcomes"]
        if (each["load"]["arm"], each["load"]["num_sessions"]) == (gain["arm"], gain["num_sessions"])
    ]
    num_passes, num_verifying, num_tokens = (
        sum(each[name] for each in here) for name in ("num_passes", "num_verifying", "num_tokens")
    )
    alone, split = gain["batch_sizes"]
    times = {
        (int(size.split(" x ")[0]), int(size.split(" x ")[1])): seconds
        for size, seconds in capacity["pass_s"].items()
    }
    with_block_s = _pass_s(times, split, 1 + gain["width"]) / split
    share = num_verifying / num_passes
    mean_s = share * with_block_s + (1 - share) * _plain_s(times, split)
    return float(num_tokens / num_passes * _plain_s(times, alone) / mean_s)


def _pass_s(times: PassTimes, batch_size: float, width: float) -> float:
    """Interpolate between the sizes around this one, which were timed."""
    return sum(
        max(0.0, 1 - abs(batch_size - batch)) * max(0.0, 1 - abs(width - tokens)) * seconds
        for (batch, tokens), seconds in times.items()
    )


def _plain_s(times: PassTimes, batch_size: float) -> float:
    """Return the time of a session in a pass without candidates."""
    known = sorted((batch, seconds) for (batch, width), seconds in times.items() if width == 1)
    return float(np.interp(batch_size, *zip(*known, strict=True))) / batch_size
