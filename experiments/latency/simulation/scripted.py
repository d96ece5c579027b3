"""Models that write a trace's text at a given cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.common.models.scripted import SlotModel
from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.hosts import Clock
from specwhisper.model.choosing import Row, Scores
from specwhisper.options import DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import ClosedWindow, Extent, Windows
from specwhisper.types import Outcome, Window

RADIX = 1000  # a prompt's tokens are the digits of its decoding's index
PROMPT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """Time of a forward pass: constant, per token and per session.

    Attributes
    ----------
    measured : tokens of a forward pass of one session and its seconds, ascending; they replace the constant
        and the part of each token, and what lies between them is interpolated.
    """

    pass_s: float
    token_s: float = 0.0
    session_s: float = 0.0
    measured: tuple[tuple[int, float], ...] = ()

    def of(self, num_tokens: float, num_sessions: int) -> float:
        if self.measured:
            last, last_s = self.measured[-1]
            further_s = max(0, num_tokens - last) * last_s / last
            return float(np.interp(num_tokens, *zip(*self.measured, strict=True))) + further_s
        return self.pass_s + num_tokens * self.token_s + num_sessions * self.session_s


def prompt_of(index: int) -> tuple[int, ...]:
    """Return the prompt that identifies a decoding: a simulation has no audio."""
    return tuple(index // RADIX**power % RADIX for power in reversed(range(PROMPT_TOKENS)))


class ScriptedWindows(Windows):
    def __init__(self, decodings: Sequence[Decoding], script: Sequence[int]) -> None:
        self._decodings = decodings
        self._script = script
        self.next_frame, self.has_followed = 0, False

    def open(self, num_frames: int) -> Window:
        room = len(self._decodings[self._script[self.next_frame]].tokens)
        return Window(self.next_frame, self.next_frame, num_frames, self._prompt(), room)

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Keep the window; after the last one the recording ends."""
        is_last = window.start_frame + 1 == len(self._script)
        self.next_frame = window.start_frame + (window.num_frames if is_last else 1)
        return ClosedWindow(Outcome.KEPT, (), (), num_kept=len(tokens))

    def predict_first(self, language: str | None, audio: Extent) -> Window | None:
        if self.has_followed or not audio.window_is_ready(0):
            return None
        return self.open(audio.window_frames(0))

    def _prompt(self) -> tuple[int, ...]:
        return prompt_of(self._script[self.next_frame])


def script_of(options: DecodingOptions) -> list[int]:
    """Return the indices of a session's decodings, from its prompt option."""
    return [int(index) for index in (options.initial_prompt or "0").split()]


class ScriptedModel(SlotModel):
    """A target or draft that writes decodings of a trace; see ``Model``."""

    def __init__(
        self,
        decodings: Sequence[Decoding],
        vocabulary: Vocabulary,
        cost: Cost,
        clock: Clock,
        *,
        num_slots: int,
        is_draft: bool = False,
    ) -> None:
        super().__init__(vocabulary, num_slots, vocabulary.max_length)
        self._decodings = {prompt_of(i): decoding for i, decoding in enumerate(decodings)}
        self._cost = cost
        self._clock = clock
        self._is_draft = is_draft

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        self._clock.spend(self._cost.of(sum(len(row.tokens) for row in rows), len(rows)))
        return [self._scored(row) for row in rows]

    def _scored(self, row: Row) -> Scores:
        self._fed[row.slot] += row.tokens
        decoding = self._decodings[tuple(self._fed[row.slot][:PROMPT_TOKENS])]
        if self._is_draft:
            tokens, log_probs = decoding.draft_after_each(row.generated, row.candidates)
            return Scores(tokens, log_probs, [1.0] * len(tokens))
        return Scores(*decoding.target_after_each(len(row.generated), row.num_candidates))

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        """Return the ids that a hint consists of: a simulation has no other text."""
        return tuple(map(int, text.split()))
