"""Continue from the oracle's token at its ties, where two correct programs may diverge for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.exactness.oracle import OracleText
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model


class Steered:
    """A target that chooses as its model does, but at the oracle's ties as the oracle did.

    Parameters
    ----------
    oracles : texts by the number of samples of their recording.

    Attributes
    ----------
    num_steered : choices at which the model, undecided as the oracle was, chose differently.
    margins : how far a choice was ahead of the second best, by the recording's samples and the window's
        tokens before it; of several windows that begin alike, the least.
    """

    def __init__(self, model: Model, oracles: Mapping[int, OracleText]) -> None:
        self.num_steered = 0
        self.margins: dict[tuple[int, tuple[int, ...]], float] = {}
        self._model = model
        self._windows = [(0, 0)] * model.num_slots  # samples of each slot's recording, first frame
        self._choices = {
            (samples, window.start_frame, window.tokens[:position]): window.tokens[position]
            for samples, text in oracles.items()
            for window in text.windows
            for position in window.ties
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._windows[slot] = recording.received_samples, start_frame
        self._model.encode(slot, recording, start_frame)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        scores = self._model.score(rows)
        for row, score in zip(rows, scores, strict=True):
            samples, start_frame = self._windows[row.slot]
            for i, (token, margin) in enumerate(zip(score.tokens, score.margins, strict=True)):
                prefix = (*row.generated, *row.candidates[:i])
                self.margins[samples, prefix] = min(margin, self.margins.get((samples, prefix), margin))
                choice = self._choices.get((samples, start_frame, prefix), token)
                self.num_steered += choice != token
                score.tokens[i] = choice
        return scores
