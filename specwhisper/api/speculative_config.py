"""How a pair in one process speculates and chooses tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.options import options_from
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Keyed, Mode


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """How to speculate, and how to choose tokens.

    Attributes
    ----------
    gamma : draft tokens per block.
    use_adaptive_gamma : end a block once the draft is not sure of it, whatever ``gamma`` is.
    temperature : 0 is greedy; several are tried in order until a window is good enough, see the thresholds of
        :class:`DecodingOptions`.
    top_k, top_p, seed, acceptance_threshold : see :class:`DecodingOptions`. With a threshold the
        text may differ from the target's own, and results show it.
    """

    gamma: int = 5
    use_adaptive_gamma: bool = False
    temperature: float | Sequence[float] | None = None
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    acceptance_threshold: float | None = None

    def __post_init__(self) -> None:
        self.draft_length(Mode.ONE_PROCESS)
        options_from({}, self.decoding)

    def draft_length(
        self, mode: Mode, gamma: int | None = None, use_adaptive_gamma: bool | None = None
    ) -> DraftLength:
        """Return how far a draft runs ahead in a mode.

        Values of a call override those of the config. A call's ``gamma`` stays as it is, unless the call says
        that it is adaptive.
        """
        if use_adaptive_gamma is None:
            use_adaptive_gamma = self.use_adaptive_gamma if gamma is None else False
        if not isinstance(use_adaptive_gamma, bool):
            raise InvalidRequest(f"use_adaptive_gamma is {use_adaptive_gamma!r}: it must be True or False.")
        wanted = DraftLength(mode, self.gamma if gamma is None else gamma)  # checked in any case
        return DraftLength(mode) if use_adaptive_gamma else wanted

    @property
    def decoding(self) -> dict[str, Any]:
        """The decoding options among them."""
        return {
            "temperatures": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "acceptance_threshold": self.acceptance_threshold,
        }


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
