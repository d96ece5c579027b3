"""Compare draft lengths: time, and how many drafted tokens were kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Keyed


@dataclass(frozen=True, slots=True)
class GammaFigures(Keyed):
    """Time of a call with one ``gamma``, and the statistics of its draft."""

    gamma: int
    elapsed_s: float
    stats: SpeculationStatistics

    def __str__(self) -> str:
        stats = self.stats
        return (
            f"gamma {self.gamma:2}: {self.elapsed_s:6.2f} s, {stats.num_accepted} of {stats.num_drafted} "
            f"drafted tokens kept, {stats.tokens_per_forward:.2f} tokens per forward pass"
        )


def compare_gammas(
    call: Callable[..., Any], given: Any, gammas: Sequence[int] = (5, 10, 20), **options: Any
) -> list[GammaFigures]:
    """Call with each ``gamma``, and print a line about each.

    One more call comes before them, untimed, because first calls take longer.

    Parameters
    ----------
    call : ``transcribe`` of a :class:`SpeculativeWhisper`, or ``generate`` of a :class:`SpeculativeLM`.
    given : what it takes: one or several recordings, or prompts.
    options : the call's.
    """
    call(given, gamma=gammas[0], **options)
    compared = []
    for gamma in gammas:
        started_s = time.perf_counter()
        results = call(given, gamma=gamma, **options)
        elapsed_s = time.perf_counter() - started_s
        total = SpeculationStatistics()
        for result in results if isinstance(results, list) else [results]:
            total.add(result.stats)
        compared.append(GammaFigures(gamma, elapsed_s, total))
        print(compared[-1])
    return compared
