"""Where a draft leaves the text of its target, and what it writes from there on.

The draft is asked behind every prefix of the target's text in one pass. Where it agrees, its continuation is
that of the next position; only where it does not is it followed, token by token, as it would draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import DecodingOptions
from specwhisper.types import Window


@dataclass(frozen=True)
class Departing:
    """A window and what its target wrote in it."""

    recording: Recording
    window: Window
    tokens: Sequence[int]
    options: DecodingOptions

    def row(self, slot: int, generated: Sequence[int], fed: Sequence[int], num_candidates: int = 0) -> Row:
        """Put together what a slot is fed."""
        return Row(
            slot=slot,
            tokens=fed,
            num_candidates=num_candidates,
            generated=generated,
            timestamps=self.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(self.options),
            sampling=window_sampling(self.window, self.options),
        )


@dataclass(frozen=True)
class Departures:
    """What a draft writes in one window: behind the target's text, and where it departs from that.

    Attributes
    ----------
    log_probs : of its choice behind each prefix of the target's text.
    tokens, alone_log_probs : by position, where it departs: what it writes from there on.
    """

    log_probs: tuple[float, ...]
    tokens: dict[int, tuple[int, ...]]
    alone_log_probs: dict[int, tuple[float, ...]]


def find_departures(draft: Model, windows: Sequence[Departing], max_alone: int) -> list[Departures]:
    """Find, for each window, where the draft departs and the next ``max_alone`` tokens it writes there."""
    found = []
    for start in range(0, len(windows), draft.num_slots):
        batch = windows[start : start + draft.num_slots]
        for slot, one in enumerate(batch):
            draft.encode(slot, one.recording, one.window.start_frame)
        rows = [
            one.row(slot, (), [*one.window.prompt, *one.tokens[:-1]], len(one.tokens) - 1)
            for slot, one in enumerate(batch)
        ]
        followers = [
            _Follower(draft, slot, one, scores, max_alone)
            for slot, (one, scores) in enumerate(zip(batch, draft.score(rows), strict=True))
        ]
        while rows := [row for follower in followers if (row := next(follower.rows, None)) is not None]:
            for row, scores in zip(rows, draft.score(rows), strict=True):
                followers[row.slot].append(scores)
        found += [follower.found for follower in followers]
    return found


class _Follower:
    """Follows the draft in one slot: asks for its next row until every departure is known.

    Whoever runs the rows appends what they gave.
    """

    def __init__(self, draft: Model, slot: int, departing: Departing, scores: Scores, max_alone: int) -> None:
        self.found = Departures(tuple(scores.log_probs), {}, {})
        self._alone: list[int] = []
        self._log_probs: list[float] = []
        self.rows = self._rows(draft, slot, departing, scores.tokens, max_alone)

    def append(self, scores: Scores) -> None:
        """Take the next token that the draft writes by itself."""
        self._alone.append(scores.tokens[0])
        self._log_probs.append(scores.log_probs[0])

    def _rows(
        self, draft: Model, slot: int, departing: Departing, choices: Sequence[int], max_alone: int
    ) -> Iterator[Row]:
        tokens, num_prompt = list(departing.tokens), len(departing.window.prompt)
        # From the last to the first: what lies before a departure is then still as the target wrote it.
        for position in reversed(range(len(tokens))):
            if choices[position] == tokens[position]:
                continue
            draft.rollback(slot, num_prompt + position)
            self._alone, self._log_probs = [choices[position]], [self.found.log_probs[position]]
            room = min(max_alone, draft.max_positions - num_prompt - position)
            while len(self._alone) < room and self._alone[-1] not in draft.vocabulary.ends:
                yield departing.row(slot, [*tokens[:position], *self._alone], self._alone[-1:])
            self.found.tokens[position] = tuple(self._alone)
            self.found.alone_log_probs[position] = tuple(self._log_probs)
