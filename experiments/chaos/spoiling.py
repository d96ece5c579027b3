"""Logs spoilt on purpose, each in one way, and the violation by which each has to be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from experiments.common.models.scripted import END
from experiments.common.oracle import Log, Told, Wrong
from specwhisper.types import Segment

Spoil = Callable[[Log], Log]


def duplicated(log: Log) -> Log:
    """Tell something final twice."""
    at = _finals(log)[0]
    return _with(log, [*log.told[: at + 1], *log.told[at:]])


def dropped(log: Log) -> Log:
    """Leave something final out."""
    at = _finals(log)[0]
    return _with(log, [*log.told[:at], replace(log.told[at], segments=()), *log.told[at + 1 :]])


def silent(log: Log) -> Log:
    """Tell nothing at all, although text was due."""
    return _with(log, [replace(told, segments=()) for told in log.told])


def swapped(log: Log) -> Log:
    """Return the first thing that is final last, and the last one first."""
    first, *_, last = _finals(log)
    told = list(log.told)
    told[first] = replace(told[first], segments=log.told[last].segments)
    told[last] = replace(told[last], segments=log.told[first].segments)
    return _with(log, told)


def retracted(log: Log) -> Log:
    """Tell in the end that something final was something else."""
    said = log.told[_finals(log)[0]].segments[0]
    return _with(log, [*log.told, replace(log.told[-1], segments=(_altered(said),))])


def altered(log: Log) -> Log:
    """Tell one other token."""
    at = _finals(log)[0]
    segments = log.told[at].segments
    other = replace(log.told[at], segments=(_altered(segments[0]), *segments[1:]))
    return _with(log, [*log.told[:at], other, *log.told[at + 1 :]])


def told_late(log: Log) -> Log:
    """Go on with an utterance that had ended."""
    said = replace(log.segments[-1], is_utterance_end=False)
    return _with(log, [*log.told, replace(log.told[-1], segments=(said,))])


def unended(log: Log) -> Log:
    """Say of no utterance that it ends."""
    return _with(
        log,
        [
            replace(told, segments=tuple(replace(said, is_utterance_end=False) for said in told.segments))
            for told in log.told
        ],
    )


def backdated(log: Log) -> Log:
    """Say that the last words were spoken first."""
    at = _finals(log)[-1]
    *before, said = log.told[at].segments
    early = replace(said, start_s=log.segments[0].start_s - 1.0)
    return _with(log, [*log.told[:at], replace(log.told[at], segments=(*before, early)), *log.told[at + 1 :]])


def uncommitted(log: Log) -> Log:
    """Count fewer commits than before."""
    return _with(log, [*log.told, replace(log.told[-1], segments=(), num_committed=0)])


def sent_again(log: Log) -> Log:
    """Take in audio a second time."""
    return _with(log, [*log.told, replace(log.told[-1], segments=(), received_s=0.0)])


def failed(log: Log) -> Log:
    """End with an error, all text told."""
    return replace(log, error="it ended")


OF_ANY: Mapping[Spoil, Wrong] = {
    uncommitted: Wrong.RETURNED,
    sent_again: Wrong.HEARD_AGAIN,
    swapped: Wrong.OUT_OF_ORDER,
    failed: Wrong.FAILED,
}
OF_RECORDING: Mapping[Spoil, Wrong] = {
    **OF_ANY,
    duplicated: Wrong.TWICE,
    dropped: Wrong.LOST,
    silent: Wrong.LOST,
    retracted: Wrong.RETRACTED,
    altered: Wrong.DIFFERENT,
}
OF_LIVE: Mapping[Spoil, Wrong] = {
    **OF_ANY,
    duplicated: Wrong.REPEATED_WORDS,
    dropped: Wrong.LOST_WORDS,
    silent: Wrong.LOST_WORDS,
    altered: Wrong.OTHER_WORDS,
    told_late: Wrong.BEHIND_END,
    unended: Wrong.ENDS,
    backdated: Wrong.BACK_IN_TIME,
}


def _finals(log: Log) -> list[int]:
    """Find the places where something became final."""
    return [i for i, told in enumerate(log.told) if told.segments]


def _with(log: Log, told: list[Told]) -> Log:
    return replace(log, told=told)


def _altered(segment: Segment) -> Segment:
    """Write another letter for the first one, or one where there is none."""
    letters = [i for i, token in enumerate(segment.tokens) if token < END]
    at = letters[0] if letters else 0
    tokens = (*segment.tokens[:at], (segment.tokens[at] + 1) % END, *segment.tokens[at + 1 :])
    return replace(segment, tokens=tokens, text="another")
