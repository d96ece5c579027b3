"""Find where a draft diverges from its target's text, and what it writes from there on.

Forward passes run the draft after every prefix of the target's text. Where it agrees, its continuation is
that of the next position; only where it diverges is it followed, token by token, as it would draft.
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
class TargetText:
    recording: Recording
    window: Window
    tokens: Sequence[int]
    options: DecodingOptions

    def row(self, slot: int, generated: Sequence[int], fed: Sequence[int], num_candidates: int = 0) -> Row:
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
class Divergences:
    """A draft's choices in one window: after the target's text, and where it diverges.

    Attributes
    ----------
    log_probs : log-probability of its choice after each prefix of the target's text.
    tokens, continuation_log_probs : its continuation, by position of the divergence.
    """

    log_probs: tuple[float, ...]
    tokens: dict[int, tuple[int, ...]]
    continuation_log_probs: dict[int, tuple[float, ...]]


def find_divergences(draft: Model, windows: Sequence[TargetText], max_continuation: int) -> list[Divergences]:
    """Find where the draft diverges in each window, and the next tokens it writes there."""
    found = []
    for start in range(0, len(windows), draft.num_slots):
        batch = windows[start : start + draft.num_slots]
        for slot, one in enumerate(batch):
            draft.encode(slot, one.recording, one.window.start_frame)
        followers = [
            _Follower(draft, slot, one, *_choices(draft, slot, one), max_continuation)
            for slot, one in enumerate(batch)
        ]
        while rows := [row for follower in followers if (row := next(follower.rows, None)) is not None]:
            for row, scores in zip(rows, draft.score(rows), strict=True):
                followers[row.slot].append(scores)
        found += [follower.found for follower in followers]
    return found


def _choices(draft: Model, slot: int, written: TargetText) -> tuple[list[int], list[float]]:
    """Return the draft's choice after every prefix of the target's text, and its log-probability."""
    tokens, chosen, log_probs = list(written.tokens), list[int](), list[float]()
    while (position := len(chosen)) < len(tokens):
        text = [*written.window.prompt, *tokens[:-1]]
        candidates = tokens[position:-1]
        row = written.row(slot, tokens[:position], text[draft.length(slot) :], len(candidates))
        scores = draft.score([row])[0]
        wrong = (
            i for i, (own, token) in enumerate(zip(scores.tokens, candidates, strict=False)) if own != token
        )
        num_new = 1 + next(wrong, len(candidates))  # what follows the first difference may be made up
        chosen += scores.tokens[:num_new]
        log_probs += scores.log_probs[:num_new]
        draft.rollback(slot, len(written.window.prompt) + len(chosen) - 1)
    return chosen, log_probs


class _Follower:
    """Follows the draft in one slot: yields its next row until every divergence is known.

    The caller runs the rows and appends their scores.
    """

    def __init__(
        self,
        draft: Model,
        slot: int,
        written: TargetText,
        choices: Sequence[int],
        log_probs: Sequence[float],
        max_continuation: int,
    ) -> None:
        self.found = Divergences(tuple(log_probs), {}, {})
        self._continuation: list[int] = []
        self._log_probs: list[float] = []
        self.rows = self._rows(draft, slot, written, choices, max_continuation)

    def append(self, scores: Scores) -> None:
        self._continuation.append(scores.tokens[0])
        self._log_probs.append(scores.log_probs[0])

    def _rows(
        self, draft: Model, slot: int, written: TargetText, choices: Sequence[int], max_continuation: int
    ) -> Iterator[Row]:
        tokens, num_prompt = list(written.tokens), len(written.window.prompt)
        # From last to first: the text before a divergence is then still the target's.
        for position in reversed(range(len(tokens))):
            if choices[position] == tokens[position]:
                continue
            draft.rollback(slot, num_prompt + position)
            self._continuation, self._log_probs = [choices[position]], [self.found.log_probs[position]]
            room = min(max_continuation, draft.max_positions - num_prompt - position)
            while len(self._continuation) < room and self._continuation[-1] not in draft.vocabulary.ends:
                yield written.row(slot, [*tokens[:position], *self._continuation], self._continuation[-1:])
            self.found.tokens[position] = tuple(self._continuation)
            self.found.continuation_log_probs[position] = tuple(self._log_probs)
