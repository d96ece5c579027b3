"""What a client's log must be, whatever happened: ordered, unique, gap-free, never retracted, and the same.

Pure. As etcd does with its watches, each property is looked at by itself: so a failure says what is wrong,
and a negative control which of them has to find it.
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


class Wrong(StrEnum):
    """What can be wrong; each is looked for by itself."""

    FAILED = "failed"
    HUNG = "hung"
    RETURNED = "commits were taken back"
    HEARD_AGAIN = "audio was received again"
    OUT_OF_ORDER = "told out of order"
    # of a recording
    TWICE = "told twice"
    LOST = "lost"
    RETRACTED = "retracted"
    DIFFERENT = "different"
    # of live audio
    BEHIND_END = "told behind its end"
    ENDS = "other ends of utterances"
    REPEATED_WORDS = "words repeated"
    LOST_WORDS = "words lost"
    OTHER_WORDS = "other words"
    BACK_IN_TIME = "final text goes back in time"
    # of servers
    KEPT_SLOTS = "slots were not given back"
    BAD_EXIT = "a server ended badly"


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that does not hold, and where."""

    kind: Wrong
    says: str

    def __str__(self) -> str:
        return self.says


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was told at once.

    Attributes
    ----------
    at_s : by the monotonic clock.
    segments : that became final.
    num_committed : tokens that the target has appended so far.
    received_s : audio that was taken in so far.
    """

    at_s: float
    segments: tuple[Segment, ...] = ()
    num_committed: int = 0
    received_s: float = 0.0


@dataclass(slots=True)
class Log:
    """All that one client was told.

    Attributes
    ----------
    error : how it ended, if not well.
    hung_s : how long it was waited for in vain; ``None`` where it ended.
    ended_s : by the monotonic clock; ``None`` while it goes on.
    """

    name: str
    told: list[Told] = field(default_factory=list)
    error: str | None = None
    ended_s: float | None = None
    hung_s: float | None = None

    @property
    def segments(self) -> list[Segment]:
        """Everything final, in the order in which it came."""
        return [segment for told in self.told for segment in told.segments]

    @property
    def progress_s(self) -> list[float]:
        """When it heard of new commits."""
        moments, most = [], 0
        for told in self.told:
            if told.num_committed > most:
                most = told.num_committed
                moments.append(told.at_s)
        return moments

    @property
    def gaps_s(self) -> list[float]:
        """The times between new commits."""
        return [later_s - sooner_s for sooner_s, later_s in pairwise(self.progress_s)]


def final_of(segment: Segment) -> Final:
    """Return all of a segment that must be the same."""
    return (
        round(segment.start_s, 3),
        round(segment.end_s, 3),
        tuple(segment.tokens),
        segment.text,
        round(segment.temperature, 3),
        tuple(round(word.start_s, 3) for word in segment.words),
    )


def recording_violations(log: Log, expected: Sequence[Segment]) -> list[Violation]:
    """Say what is wrong with the log of a recording."""
    wanted, told = list(map(final_of, expected)), list(map(final_of, log.segments))
    if told == wanted:
        return _violations_of_any(log)
    counted, due = Counter(told), Counter(wanted)
    found = [_about(Wrong.TWICE, final) for final in (counted - due) if final in due]
    found += [_about(_foreign(final, told), final) for final in counted if final not in due]
    found += [_about(Wrong.LOST, final) for final in due - counted]
    if not found:
        found.append(Violation(Wrong.OUT_OF_ORDER, Wrong.OUT_OF_ORDER))
    return found + _violations_of_any(log)


def live_violations(log: Log, expected: Mapping[int, Sequence[int]]) -> list[Violation]:
    """Say what is wrong with the log of live audio, whose steps may differ, but not its words."""
    words: dict[int, list[int]] = {}
    found: list[Violation] = []
    ended: list[int] = []
    for segment in log.segments:
        if segment.utterance in ended:
            found.append(Violation(Wrong.BEHIND_END, f"told behind its end: utterance {segment.utterance}"))
        words.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
        if segment.is_utterance_end:
            ended.append(segment.utterance)
    if ended != list(expected):
        found.append(Violation(Wrong.ENDS, f"utterances ended {ended}, not {list(expected)}"))
    for utterance in sorted({*words, *expected}):
        told, due = words.get(utterance, []), list(expected.get(utterance, ()))
        if told != due:
            kind = _difference(told, due)
            found.append(
                Violation(kind, f"utterance {utterance}: {kind}: told {list(told)}, not {list(due)}")
            )
    if any(a.utterance > b.utterance for a, b in pairwise(log.segments)):
        found.append(Violation(Wrong.OUT_OF_ORDER, Wrong.OUT_OF_ORDER))
    if any(a.start_s > b.start_s for a, b in pairwise(log.segments)):
        found.append(Violation(Wrong.BACK_IN_TIME, Wrong.BACK_IN_TIME))
    return found + _violations_of_any(log)


def pause_s(log: Log, since_s: float) -> float | None:
    """Return the longest time without a commit behind a moment; ``None`` where nothing was still to come."""
    moments = [since_s, *(at_s for at_s in log.progress_s if at_s > since_s)]
    return max((b - a for a, b in pairwise(moments)), default=None)


def _violations_of_any(log: Log) -> list[Violation]:
    found = [Violation(Wrong.FAILED, f"failed: {log.error}")] if log.error is not None else []
    if log.hung_s is not None:
        found.append(Violation(Wrong.HUNG, f"hung for {log.hung_s:g} s"))
    if any(a.num_committed > b.num_committed for a, b in pairwise(log.told)):
        found.append(Violation(Wrong.RETURNED, Wrong.RETURNED))
    if any(a.received_s > b.received_s for a, b in pairwise(log.told)):
        found.append(Violation(Wrong.HEARD_AGAIN, Wrong.HEARD_AGAIN))
    return found


def _foreign(final: Final, told: Sequence[Final]) -> Wrong:
    start_s, end_s = final[:2]
    before = told[: told.index(final)]
    is_known = any(begin_s < end_s and start_s < finish_s for begin_s, finish_s, *_ in before)
    return Wrong.RETRACTED if is_known else Wrong.DIFFERENT


def _difference(told: Sequence[int], due: Sequence[int]) -> Wrong:
    if _lies_in(due, told):
        return Wrong.REPEATED_WORDS
    return Wrong.LOST_WORDS if _lies_in(told, due) else Wrong.OTHER_WORDS


def _lies_in(part: Sequence[int], whole: Sequence[int]) -> bool:
    rest = iter(whole)
    return all(token in rest for token in part)


def _about(kind: Wrong, final: Final) -> Violation:
    return Violation(kind, f"{kind}: {final[0]:.2f}-{final[1]:.2f} s '{final[3]}'")
