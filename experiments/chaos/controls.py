"""Negative controls: logs that were spoilt on purpose, each in one way, which the oracle must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from experiments.chaos.oracle import Log, Told
from experiments.common.scripted import END
from specwhisper.types import Segment

Spoil = Callable[[Log], Log]


def _final(log: Log, place: int = 0) -> int:
    """Find a place where something became final, counted from the first."""
    return [i for i, told in enumerate(log.told) if told.segments][place]


def _with(log: Log, told: list[Told]) -> Log:
    return Log(log.name, told, log.error, log.ended_s)


def duplicated(log: Log) -> Log:
    """Tell something final twice."""
    at = _final(log)
    return _with(log, [*log.told[: at + 1], *log.told[at:]])


def dropped(log: Log) -> Log:
    """Leave something final out."""
    at = _final(log)
    return _with(log, [*log.told[:at], replace(log.told[at], segments=()), *log.told[at + 1 :]])


def swapped(log: Log) -> Log:
    """Tell something final too late."""
    first, second = _final(log), _final(log, 1)
    told = list(log.told)
    told[first] = replace(told[first], segments=log.told[second].segments)
    told[second] = replace(told[second], segments=log.told[first].segments)
    return _with(log, told)


def retracted(log: Log) -> Log:
    """Tell in the end that something final was something else."""
    said = log.told[_final(log)].segments[0]
    return _with(log, [*log.told, replace(log.told[-1], segments=(_altered(said),))])


def altered(log: Log) -> Log:
    """Tell one other token."""
    at = _final(log)
    segments = log.told[at].segments
    other = replace(log.told[at], segments=(_altered(segments[0]), *segments[1:]))
    return _with(log, [*log.told[:at], other, *log.told[at + 1 :]])


def uncommitted(log: Log) -> Log:
    """Count fewer commits than before."""
    return _with(log, [*log.told, replace(log.told[-1], num_committed=0)])


def failed(log: Log) -> Log:
    """End with an error, all text told."""
    return Log(log.name, log.told, "it ended", log.ended_s)


SPOILT: dict[str, Spoil] = {
    each.__name__: each for each in (duplicated, dropped, swapped, retracted, altered, uncommitted, failed)
}


def _altered(segment: Segment) -> Segment:
    """Write another letter for the first one, or one where there is none."""
    letters = [i for i, token in enumerate(segment.tokens) if token < END]
    at = letters[0] if letters else 0
    tokens = (*segment.tokens[:at], (segment.tokens[at] + 1) % END, *segment.tokens[at + 1 :])
    return replace(segment, tokens=tokens, text="another")
