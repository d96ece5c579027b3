"""Live text comes piece by piece; what people read, and subtitles show, are utterances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from specwhisper.types import Segment


class Utterances:
    """Joins final pieces; an utterance is complete once its last piece has come.

    Attributes
    ----------
    pieces : of the open utterance.
    """

    def __init__(self) -> None:
        self.pieces: list[Segment] = []

    def add(self, pieces: Iterable[Segment]) -> list[Segment]:
        """Take final pieces in order, and give the utterances that they complete."""
        complete = []
        for piece in pieces:
            if self.pieces and piece.utterance != self.pieces[0].utterance:
                complete += self.finish()  # its end was lost with a connection
            self.pieces.append(piece)
            if piece.is_utterance_end:
                complete += self.finish()
        return complete

    def finish(self) -> list[Segment]:
        """Give what there is of an open utterance: nothing will follow."""
        pieces, self.pieces = self.pieces, []
        return [joined(pieces)] if any(piece.text.strip() for piece in pieces) else []


def in_order(segments: Iterable[Segment], final_end_s: float) -> tuple[Segment, ...]:
    """Move segments that begin before the end of the final text to it, and each after the one before.

    A server at which a stream goes on knows the final text, but not when it was spoken.
    """
    ordered: list[Segment] = []
    for segment in segments:
        start_s = max(segment.start_s, final_end_s)
        final_end_s = max(segment.end_s, start_s)
        ordered.append(replace(segment, start_s=start_s, end_s=final_end_s))
    return tuple(ordered)


def joined(pieces: list[Segment]) -> Segment:
    """Make one segment of the pieces of an utterance; figures are means, of temperatures the highest."""
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
