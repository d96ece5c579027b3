"""Join the final pieces of live text to utterances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from specwhisper.types import Segment


class Utterances:
    """Joins final pieces to utterances; an utterance is complete with its last piece.

    Attributes
    ----------
    pieces : those of the open utterance.
    """

    def __init__(self) -> None:
        self.pieces: list[Segment] = []

    def add(self, pieces: Iterable[Segment]) -> list[Segment]:
        """Add final pieces in order; return the utterances that they complete."""
        complete = []
        for piece in pieces:
            if self.pieces and piece.utterance != self.pieces[0].utterance:
                complete += self.finish()  # its end was lost with a connection
            self.pieces.append(piece)
            if piece.is_utterance_end:
                complete += self.finish()
        return complete

    def finish(self) -> list[Segment]:
        """Return the open utterance, if it has text: no piece follows."""
        pieces, self.pieces = self.pieces, []
        return [joined(pieces)] if any(piece.text.strip() for piece in pieces) else []


def joined(pieces: list[Segment]) -> Segment:
    """Join an utterance's pieces to one segment, with mean scores."""
    spoken = [piece for piece in pieces if piece.text.strip()]
    probs = [piece.no_speech_prob for piece in spoken if piece.no_speech_prob is not None]
    return replace(
        spoken[0],
        end_s=spoken[-1].end_s,
        text="".join(piece.text for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        words=tuple(word for piece in spoken for word in piece.words),
        confidence=fmean(piece.confidence for piece in spoken),
        avg_logprob=spoken[-1].avg_logprob,
        compression_ratio=spoken[-1].compression_ratio,
        temperature=max(piece.temperature for piece in spoken),
        no_speech_prob=fmean(probs) if probs else None,
        is_utterance_end=True,
    )
