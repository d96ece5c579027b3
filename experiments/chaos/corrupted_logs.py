"""Corrupt a log in one way each, with the kind of violation that must be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from experiments.common.models.scripted import END
from experiments.common.oracle import ClientLog, ReceivedUpdate, ViolationKind
from specwhisper.types import Segment

Corrupt = Callable[[ClientLog], ClientLog]


def duplicated(log: ClientLog) -> ClientLog:
    """Repeat an update with final text."""
    at = _finals(log)[0]
    return _with(log, [*log.updates[: at + 1], *log.updates[at:]])


def dropped(log: ClientLog) -> ClientLog:
    """Remove the final text of an update."""
    at = _finals(log)[0]
    return _with(log, [*log.updates[:at], replace(log.updates[at], segments=()), *log.updates[at + 1 :]])


def silent(log: ClientLog) -> ClientLog:
    """Remove all final text."""
    return _with(log, [replace(update, segments=()) for update in log.updates])


def swapped(log: ClientLog) -> ClientLog:
    """Swap the first and the last final text."""
    first, *_, last = _finals(log)
    updates = list(log.updates)
    updates[first] = replace(updates[first], segments=log.updates[last].segments)
    updates[last] = replace(updates[last], segments=log.updates[first].segments)
    return _with(log, updates)


def retracted(log: ClientLog) -> ClientLog:
    """Add a second version of final text at the end."""
    segment = log.updates[_finals(log)[0]].segments[0]
    return _with(log, [*log.updates, replace(log.updates[-1], segments=(_altered(segment),))])


def altered(log: ClientLog) -> ClientLog:
    """Change one token."""
    at = _finals(log)[0]
    segments = log.updates[at].segments
    other = replace(log.updates[at], segments=(_altered(segments[0]), *segments[1:]))
    return _with(log, [*log.updates[:at], other, *log.updates[at + 1 :]])


def continued_after_end(log: ClientLog) -> ClientLog:
    """Add text to an utterance that has ended."""
    segment = replace(log.segments[-1], is_utterance_end=False)
    return _with(log, [*log.updates, replace(log.updates[-1], segments=(segment,))])


def unended(log: ClientLog) -> ClientLog:
    """Remove all utterance ends."""
    return _with(
        log,
        [
            replace(
                update,
                segments=tuple(replace(segment, is_utterance_end=False) for segment in update.segments),
            )
            for update in log.updates
        ],
    )


def backdated(log: ClientLog) -> ClientLog:
    """Move the last words before the first ones in time."""
    at = _finals(log)[-1]
    *before, last = log.updates[at].segments
    early = replace(last, start_s=log.segments[0].start_s - 1.0)
    return _with(
        log, [*log.updates[:at], replace(log.updates[at], segments=(*before, early)), *log.updates[at + 1 :]]
    )


def commits_withdrawn(log: ClientLog) -> ClientLog:
    """Lower the number of committed tokens."""
    return _with(log, [*log.updates, replace(log.updates[-1], segments=(), num_committed=0)])


def audio_rewound(log: ClientLog) -> ClientLog:
    """Lower the number of received samples."""
    return _with(log, [*log.updates, replace(log.updates[-1], segments=(), received_s=0.0)])


def failed(log: ClientLog) -> ClientLog:
    """End with an error after all text."""
    return replace(log, error="it ended")


OF_ANY: Mapping[Corrupt, ViolationKind] = {
    commits_withdrawn: ViolationKind.COMMITS_WITHDRAWN,
    audio_rewound: ViolationKind.AUDIO_REWOUND,
    swapped: ViolationKind.OUT_OF_ORDER,
    failed: ViolationKind.FAILED,
}
OF_RECORDING: Mapping[Corrupt, ViolationKind] = {
    **OF_ANY,
    duplicated: ViolationKind.DUPLICATED,
    dropped: ViolationKind.LOST,
    silent: ViolationKind.LOST,
    retracted: ViolationKind.RETRACTED,
    altered: ViolationKind.DIFFERENT,
}
OF_LIVE: Mapping[Corrupt, ViolationKind] = {
    **OF_ANY,
    duplicated: ViolationKind.REPEATED_WORDS,
    dropped: ViolationKind.LOST_WORDS,
    silent: ViolationKind.LOST_WORDS,
    altered: ViolationKind.OTHER_WORDS,
    continued_after_end: ViolationKind.AFTER_END,
    unended: ViolationKind.WRONG_ENDS,
    backdated: ViolationKind.BACK_IN_TIME,
}


def _finals(log: ClientLog) -> list[int]:
    """Return the indices of updates with final text."""
    return [i for i, update in enumerate(log.updates) if update.segments]


def _with(log: ClientLog, updates: list[ReceivedUpdate]) -> ClientLog:
    return replace(log, updates=updates)


def _altered(segment: Segment) -> Segment:
    """Replace the first letter, or add one."""
    letters = [i for i, token in enumerate(segment.tokens) if token < END]
    at = letters[0] if letters else 0
    tokens = (*segment.tokens[:at], (segment.tokens[at] + 1) % END, *segment.tokens[at + 1 :])
    return replace(segment, tokens=tokens, text="another")
