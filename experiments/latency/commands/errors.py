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
RunLength = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="With --acceptance: mean tokens for which it then holds; 0: until the draft's next error.",
    ),
]


def with_errors(
    trace: Trace, acceptance: str | None, realigns: str, run_length: float, seed: int
) -> Iterator[tuple[str, Trace]]:
    """Yield a name and a trace for each combination of the rates; without rates, the trace itself."""
    found = processes(acceptance, realigns, run_length)
    if not found:
        yield "the pair's own errors", trace
    for process in found:
        yield str(process), replace(trace, decodings=process.applied(trace.decodings, seed))


def named_processes(
    acceptance: str | None, realigns: str, run_length: float
) -> dict[str, ErrorProcess | None]:
    """Return each combination of the rates by what its files are called; without rates, the pair's errors.

    The names are empty unless there are several.
    """
    found = processes(acceptance, realigns, run_length)
    if len(found) < 2:
        return {"": found[0] if found else None}
    return {f"-{one.acceptance:g}-{one.realigns:g}": one for one in found}


def processes(acceptance: str | None, realigns: str, run_length: float) -> list[ErrorProcess]:
    """Return each combination of the rates; none without any."""
    if acceptance is None:
        return []
    return [
        ErrorProcess(alpha, beta, run_length)
        for alpha in _shares(acceptance, "--acceptance")
        for beta in _shares(realigns, "--realigns")
    ]


def _shares(words: str, flag: str) -> list[float]:
    try:
        found = [float(word) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= share <= 1 for share in found):
        raise InvalidRequest(f"{flag} is '{words}': pass shares from 0 to 1, separated by commas.")
    return found
