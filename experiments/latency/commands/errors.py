"""The errors of a simulated draft: those of a pair, or of chosen rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from experiments.common.replay.error_process import ErrorProcess
from experiments.common.replay.trace import Trace
from specwhisper.errors import InvalidRequest

Acceptance = Annotated[
    str | None,
    typer.Option(
        help="Shares of tokens at which the draft is right, given the target's text (alpha), as in "
        "'0.7,0.85'; default: the pair's own errors."
    ),
]
Realigns = Annotated[
    str,
    typer.Option(
        help="With --acceptance: how often what was drafted after an error holds after the correction (beta)."
    ),
]


def with_errors(
    trace: Trace, acceptance: str | None, realigns: str, seed: int
) -> Iterator[tuple[str, Trace]]:
    """Yield a name and a trace for each combination of the rates; without rates, the trace itself."""
    if acceptance is None:
        yield "the pair's own errors", trace
        return
    for alpha in _shares(acceptance, "--acceptance"):
        for beta in _shares(realigns, "--realigns"):
            decodings = ErrorProcess(alpha, beta).applied(trace.decodings, seed)
            yield f"alpha {alpha:g}, beta {beta:g}", replace(trace, decodings=decodings)


def _shares(words: str, flag: str) -> list[float]:
    try:
        found = [float(word) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= share <= 1 for share in found):
        raise InvalidRequest(f"{flag} is '{words}': pass shares from 0 to 1, separated by commas.")
    return found
