"""What a client's log must be, whatever happened: ordered, unique, gap-free, never retracted, and the same.

Pure. As etcd does with its watches, each property is looked at by itself: so a failure says what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from experiments.common.scripted import END
from specwhisper.types import Segment

Final = tuple[float, float, tuple[int, ...], str, float, tuple[float, ...]]


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
    ended_s : by the monotonic clock; ``None`` while it goes on.
    """

    name: str
    told: list[Told] = field(default_factory=list)
    error: str | None = None
    ended_s: float | None = None

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


def final_of(segment: Segment) -> Final:
    """Give all of a segment that must be the same."""
    return (
        round(segment.start_s, 3),
        round(segment.end_s, 3),
        tuple(segment.tokens),
        segment.text,
        round(segment.temperature, 3),
        tuple(round(word.start_s, 3) for word in segment.words),
    )


def recording_violations(log: Log, expected: Sequence[Segment]) -> list[str]:
    """Say what is wrong with the log of a recording."""
    wanted, told = list(map(final_of, expected)), list(map(final_of, log.segments))
    if told == wanted:
        return _violations_of_any(log)
    counted, due = Counter(told), Counter(wanted)
    found = [f"told twice: {_shown(final)}" for final in (counted - due) if final in due]
    found += [_foreign(final, told) for final in counted if final not in due]
    found += [f"lost: {_shown(final)}" for final in due - counted]
    if not found:
        found.append("told out of order")
    return found + _violations_of_any(log)


def live_violations(log: Log, expected: Mapping[int, Sequence[int]]) -> list[str]:
    """Say what is wrong with the log of live audio, whose steps may differ, but not its words."""
    words: dict[int, list[int]] = {}
    found, ended = [], []
    for segment in log.segments:
        if segment.utterance in ended:
            found.append(f"told behind its end: utterance {segment.utterance}")
        words.setdefault(segment.utterance, []).extend(i for i in segment.tokens if i < END)
        if segment.is_utterance_end:
            ended.append(segment.utterance)
    if ended != list(expected):
        found.append(f"utterances ended {ended}, not {list(expected)}")
    for utterance in sorted({*words, *expected}):
        told, due = words.get(utterance, []), list(expected.get(utterance, ()))
        if told != due:
            found.append(f"utterance {utterance}: {_difference(told, due)}")
    if any(a.utterance > b.utterance for a, b in pairwise(log.segments)):
        found.append("told out of order")
    if any(a.start_s > b.start_s for a, b in pairwise(log.segments)):
        found.append("final text goes back in time")
    return found + _violations_of_any(log)


def pause_s(log: Log, since_s: float) -> float | None:
    """Tell the longest time without a commit behind a moment; ``None`` where nothing was still to come."""
    moments = [since_s, *(at_s for at_s in log.progress_s if at_s > since_s)]
    return max((b - a for a, b in pairwise(moments)), default=None)


def _violations_of_any(log: Log) -> list[str]:
    found = [f"failed: {log.error}"] if log.error is not None else []
    if any(a.num_committed > b.num_committed for a, b in pairwise(log.told)):
        found.append("commits were taken back")
    if any(a.received_s > b.received_s for a, b in pairwise(log.told)):
        found.append("audio was received again")
    return found


def _foreign(final: Final, told: Sequence[Final]) -> str:
    start_s, end_s = final[:2]
    before = told[: told.index(final)]
    is_known = any(begin_s < end_s and start_s < finish_s for begin_s, finish_s, *_ in before)
    return f"{'retracted' if is_known else 'different'}: {_shown(final)}"


def _difference(told: Sequence[int], due: Sequence[int]) -> str:
    if _lies_in(due, told):
        kind = "words repeated"
    elif _lies_in(told, due):
        kind = "words lost"
    else:
        kind = "other words"
    return f"{kind}: told {list(told)}, not {list(due)}"


def _lies_in(part: Sequence[int], whole: Sequence[int]) -> bool:
    rest = iter(whole)
    return all(token in rest for token in part)


def _shown(final: Final) -> str:
    return f"{final[0]:.2f}-{final[1]:.2f} s '{final[3]}'"
