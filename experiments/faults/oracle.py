"""Check a client's log: ordered, unique, gap-free, never retracted, and equal to the expected text.

Pure. As for etcd's watches, each property is checked separately, so that a failure names its kind, and each
negative control the kind that must find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from experiments.common.models.scripted import END
from specwhisper.types import Segment

Final = tuple[float, float, tuple[int, ...], str, float, tuple[float, ...]]


class ViolationKind(StrEnum):
    FAILED = "failed"
    HUNG = "hung"
    COMMITS_WITHDRAWN = "commits were withdrawn"
    AUDIO_REWOUND = "the audio position went back"
    OUT_OF_ORDER = "out of order"
    # recordings
    DUPLICATED = "duplicated"
    LOST = "lost"
    RETRACTED = "retracted"
    DIFFERENT = "different"
    # live audio
    AFTER_END = "text after the end of its utterance"
    WRONG_ENDS = "wrong utterance ends"
    REPEATED_WORDS = "words repeated"
    LOST_WORDS = "words lost"
    OTHER_WORDS = "other words"
    BACK_IN_TIME = "final text goes back in time"
    # servers
    LEAKED_SLOTS = "slots were not freed"
    BAD_EXIT = "a server exited with an error"


@dataclass(frozen=True, slots=True)
class Violation:
    kind: ViolationKind
    message: str = ""

    def __str__(self) -> str:
        return self.message or self.kind


@dataclass(frozen=True, slots=True)
class ReceivedUpdate:
    """An update as a client received it.

    Attributes
    ----------
    at_s : time of arrival by the monotonic clock.
    segments : segments that became final.
    num_committed : tokens committed so far.
    received_s : seconds of audio received so far.
    """

    at_s: float
    segments: tuple[Segment, ...] = ()
    num_committed: int = 0
    received_s: float = 0.0


@dataclass(slots=True)
class ClientLog:
    """All updates of one client.

    Attributes
    ----------
    error : error with which it ended, if any.
    hung_s : timeout after which it counted as hung; ``None`` if it ended.
    ended_s : end by the monotonic clock; ``None`` while it runs.
    """

    name: str
    updates: list[ReceivedUpdate] = field(default_factory=list)
    error: str | None = None
    ended_s: float | None = None
    hung_s: float | None = None

    @property
    def segments(self) -> list[Segment]:
        return [segment for update in self.updates for segment in update.segments]

    @property
    def progress_s(self) -> list[float]:
        moments, most = [], 0
        for update in self.updates:
            if update.num_committed > most:
                most = update.num_committed
                moments.append(update.at_s)
        return moments

    @property
    def gaps_s(self) -> list[float]:
        return [later_s - sooner_s for sooner_s, later_s in pairwise(self.progress_s)]


def final_of(segment: Segment) -> Final:
    return (
        round(segment.start_s, 3),
        round(segment.end_s, 3),
        tuple(segment.tokens),
        segment.text,
        round(segment.temperature, 3),
        tuple(round(word.start_s, 3) for word in segment.words),
    )


def recording_violations(log: ClientLog, expected: Sequence[Segment]) -> list[Violation]:
    wanted, received = list(map(final_of, expected)), list(map(final_of, log.segments))
    if received == wanted:
        return _violations_of_any(log)
    counted, due = Counter(received), Counter(wanted)
    found = [_about(ViolationKind.DUPLICATED, final) for final in (counted - due) if final in due]
    found += [_about(_foreign(final, received), final) for final in counted if final not in due]
    found += [_about(ViolationKind.LOST, final) for final in due - counted]
    if not found:
        found.append(Violation(ViolationKind.OUT_OF_ORDER))
    return found + _violations_of_any(log)


def live_violations(log: ClientLog, expected: Mapping[int, Sequence[int]]) -> list[Violation]:
    """Return the violations in the log of live audio: steps may differ, words may not."""
    words: dict[int, list[int]] = {}
    found: list[Violation] = []
    ended: list[int] = []
    for segment in log.segments:
        if segment.utterance in ended:
            message = f"text after the end of utterance {segment.utterance}"
            found.append(Violation(ViolationKind.AFTER_END, message))
        words.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
        if segment.is_utterance_end:
            ended.append(segment.utterance)
    if ended != list(expected):
        message = f"utterances ended {ended}, expected {list(expected)}"
        found.append(Violation(ViolationKind.WRONG_ENDS, message))
    for utterance in sorted({*words, *expected}):
        received, due = words.get(utterance, []), list(expected.get(utterance, ()))
        if received != due:
            kind = _difference(received, due)
            message = f"utterance {utterance}: {kind}: received {received}, expected {due}"
            found.append(Violation(kind, message))
    if any(a.utterance > b.utterance for a, b in pairwise(log.segments)):
        found.append(Violation(ViolationKind.OUT_OF_ORDER))
    if any(a.start_s > b.start_s for a, b in pairwise(log.segments)):
        found.append(Violation(ViolationKind.BACK_IN_TIME))
    return found + _violations_of_any(log)


def longest_pause_s(log: ClientLog, since_s: float) -> float | None:
    """Return the longest time without a commit since a moment; ``None`` if none was to come."""
    moments = [since_s, *(at_s for at_s in log.progress_s if at_s > since_s)]
    return max((b - a for a, b in pairwise(moments)), default=None)


def _violations_of_any(log: ClientLog) -> list[Violation]:
    found = [Violation(ViolationKind.FAILED, f"failed: {log.error}")] if log.error is not None else []
    if log.hung_s is not None:
        found.append(Violation(ViolationKind.HUNG, f"hung for {log.hung_s:g} s"))
    if any(a.num_committed > b.num_committed for a, b in pairwise(log.updates)):
        found.append(Violation(ViolationKind.COMMITS_WITHDRAWN))
    if any(a.received_s > b.received_s for a, b in pairwise(log.updates)):
        found.append(Violation(ViolationKind.AUDIO_REWOUND))
    return found


def _foreign(final: Final, received: Sequence[Final]) -> ViolationKind:
    start_s, end_s = final[:2]
    before = received[: received.index(final)]
    is_known = any(begin_s < end_s and start_s < finish_s for begin_s, finish_s, *_ in before)
    return ViolationKind.RETRACTED if is_known else ViolationKind.DIFFERENT


def _difference(received: Sequence[int], due: Sequence[int]) -> ViolationKind:
    if _is_subsequence(due, received):
        return ViolationKind.REPEATED_WORDS
    return ViolationKind.LOST_WORDS if _is_subsequence(received, due) else ViolationKind.OTHER_WORDS


def _is_subsequence(part: Sequence[int], whole: Sequence[int]) -> bool:
    rest = iter(whole)
    return all(token in rest for token in part)


def _about(kind: ViolationKind, final: Final) -> Violation:
    return Violation(kind, f"{kind}: {final[0]:.2f}-{final[1]:.2f} s '{final[3]}'")
