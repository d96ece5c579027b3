"""Continue from the oracle's token at its ties, where two correct programs may diverge for good."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.exactness.oracle import OracleText
from experiments.exactness.wrapping import Wrapping
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model

Place = tuple[int, int, tuple[int, ...]]  # samples of the recording, first frame of the window, prefix


class Steered(Wrapping):
    """A target that chooses as its model does, but at the oracle's ties as the oracle did.

    Parameters
    ----------
    oracles : by number of samples of the recording they belong to.

    Attributes
    ----------
    num_steered : choices at which the model, undecided as the oracle was, chose differently.
    """

    def __init__(self, model: Model, oracles: dict[int, OracleText]) -> None:
        super().__init__(model)
        self.num_steered = 0
        self._choices: dict[Place, int] = {
            (samples, window.start_frame, window.tokens[:position]): window.tokens[position]
            for samples, text in oracles.items()
            for window in text.windows
            for position in window.ties
        }

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Choose as the model does, at ties as the oracle did."""
        scores = self._model.score(rows)
        for row, score in zip(rows, scores, strict=True):
            for i, token in enumerate(score.tokens):
                prefix = (*row.generated, *row.candidates[:i])
                choice = self._choices.get((*self._places[row.slot], prefix), token)
                self.num_steered += choice != token
                score.tokens[i] = choice
        return scores
