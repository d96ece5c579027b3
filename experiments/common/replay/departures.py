"""Where a draft leaves the text of its target, and what it writes from there on.

The draft is asked behind every prefix of the target's text in one pass. Where it agrees, its continuation is
that of the next position; only where it does not is it followed, token by token, as it would draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specwhisper.audio.recording import Recording
from specwhisper.options import DecodingOptions
from specwhisper.types import Window
from specwhisper.whisper.choosing import Row
from specwhisper.whisper.model import Model
from specwhisper.whisper.rules import max_initial_timestamp
from specwhisper.whisper.sampling import window_sampling


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


def find_departures(
    draft: Model, windows: Sequence[Departing], max_alone: int
) -> list[dict[int, tuple[int, ...]]]:
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
        choices = [scores.tokens for scores in draft.score(rows)]
        followers = [
            _Follower(draft, slot, one, chosen, max_alone)
            for slot, (one, chosen) in enumerate(zip(batch, choices, strict=True))
        ]
        while rows := [row for follower in followers if (row := next(follower.rows, None)) is not None]:
            for row, scores in zip(rows, draft.score(rows), strict=True):
                followers[row.slot].alone.append(scores.tokens[0])
        found += [follower.found for follower in followers]
    return found


class _Follower:
    """Follows the draft in one slot: asks for its next row until every departure is known.

    Attributes
    ----------
    alone : what the draft has written since the last departure; whoever runs the rows appends to it.
    """

    def __init__(
        self, draft: Model, slot: int, departing: Departing, choices: Sequence[int], max_alone: int
    ) -> None:
        self.found: dict[int, tuple[int, ...]] = {}
        self.alone: list[int] = []
        self.rows = self._rows(draft, slot, departing, choices, max_alone)

    def _rows(
        self, draft: Model, slot: int, departing: Departing, choices: Sequence[int], max_alone: int
    ) -> Iterator[Row]:
        tokens, num_prompt = list(departing.tokens), len(departing.window.prompt)
        # From the last to the first: what lies before a departure is then still as the target wrote it.
        for position in reversed(range(len(tokens))):
            if choices[position] == tokens[position]:
                continue
            draft.rollback(slot, num_prompt + position)
            self.alone = [choices[position]]
            room = min(max_alone, draft.max_positions - num_prompt - position)
            while len(self.alone) < room and self.alone[-1] not in draft.vocabulary.ends:
                yield departing.row(slot, [*tokens[:position], *self.alone], self.alone[-1:])
            self.found[position] = tuple(self.alone)
