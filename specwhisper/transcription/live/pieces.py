"""Follow the voice marks of live audio: in which pieces it is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from specwhisper.live import PIECE_SAMPLES, LivePosition
from specwhisper.types import SAMPLE_RATE, VoiceEvent, VoiceMark

MAX_PIECE_SAMPLES = 29 * SAMPLE_RATE  # with the window's last second, no word is cut off
# How far before its mark an utterance may begin: its padding, and the speech that endpointing waits for.
MAX_LOOK_BACK_SAMPLES = 5 * SAMPLE_RATE


class Piece(NamedTuple):
    """An utterance of live audio, or a part of a long one.

    Attributes
    ----------
    utterance : number of its utterance, counted from 1.
    start_sample, end_sample : where its audio begins and ends; so far, while it grows.
    is_complete : whether it grows no longer.
    is_last : whether the utterance ends with it.
    """

    utterance: int
    start_sample: int
    end_sample: int
    is_complete: bool = False
    is_last: bool = False


class LivePieces:
    """The pieces of a session that have no final text.

    Draft and target follow them alike.

    Attributes
    ----------
    received_samples : position one past the newest sample.
    has_ended : whether the audio has.
    """

    def __init__(self, position: LivePosition) -> None:
        self.received_samples = position.next_sample
        self.has_ended = False
        self._first_sample = position.start_sample  # of all audio that can be decoded
        self._complete: deque[Piece] = deque()
        self._growing_from = position.next_sample if position.is_speech else None
        self._utterance = position.num_utterances
        self._boundary = position.next_sample  # the end of the last piece

    def append_audio(self, end_sample: int, marks: Sequence[VoiceMark], *, is_last: bool = False) -> None:
        """Follow audio up to a sample, and its voice marks."""
        self.received_samples = max(self.received_samples, end_sample)
        for mark in marks:
            self._follow(mark)
        self.has_ended |= is_last
        start = self._growing_from
        while start is not None and self.received_samples - start > MAX_PIECE_SAMPLES:
            self._complete_at(start + MAX_PIECE_SAMPLES, is_last=False)
            start = self._growing_from
        if is_last and start is not None:
            self._complete_at(self.received_samples, is_last=True)

    @property
    def current(self) -> Piece | None:
        """The oldest piece, which may still grow."""
        return self._complete[0] if self._complete else self._growing

    @property
    def all(self) -> list[Piece]:
        """All pieces without final text, of which the last one may grow."""
        growing = self._growing
        return [*self._complete, *([growing] if growing is not None else [])]

    @property
    def needed_from(self) -> int:
        """First sample that a piece may still begin with."""
        if (current := self.current) is not None:
            return current.start_sample
        look_back = self.received_samples - MAX_LOOK_BACK_SAMPLES
        return max(self._boundary, _rounded_down(look_back))

    def finish_current(self) -> Piece:
        """Remove the oldest piece, which is complete: it has final text."""
        return self._complete.popleft()

    def finish_up_to(self, end_sample: int) -> None:
        """Remove the pieces that end there or before."""
        while self._complete and self._complete[0].end_sample <= end_sample:
            self._complete.popleft()

    @property
    def _growing(self) -> Piece | None:
        start = self._growing_from
        if start is None or self.received_samples <= start:
            return None
        return Piece(self._utterance, start, self.received_samples)

    def _follow(self, mark: VoiceMark) -> None:
        """Follow a mark; one that contradicts the state is ignored."""
        sample = min(mark.sample, self.received_samples)
        if mark.event is VoiceEvent.BEGIN:
            if self._growing_from is None:
                self._utterance += 1
                look_back = self.received_samples - MAX_LOOK_BACK_SAMPLES
                self._growing_from = max(_rounded_down(max(sample, look_back)), self._boundary)
        elif self._growing_from is not None:
            self._complete_at(sample, is_last=mark.event is VoiceEvent.END)

    def _complete_at(self, sample: int, *, is_last: bool) -> None:
        """Complete the piece that grows."""
        start = self._growing_from
        if start is None:
            return
        end = min(_rounded_up(sample) if is_last else _rounded_down(sample), self.received_samples)
        if end - start < PIECE_SAMPLES:
            if not is_last:
                return
            # Its end must be reported, so it needs some audio: if need be, of the piece before.
            end = max(end, start)
            start = max(self._first_sample, _rounded_down(end - PIECE_SAMPLES))
        self._boundary = max(self._boundary, _rounded_up(end))
        self._growing_from = None if is_last else self._boundary
        if end > start:
            self._complete.append(Piece(self._utterance, start, end, is_complete=True, is_last=is_last))
        else:
            self._utterance -= 1


def _rounded_down(sample: int) -> int:
    return sample // PIECE_SAMPLES * PIECE_SAMPLES


def _rounded_up(sample: int) -> int:
    return -(-sample // PIECE_SAMPLES) * PIECE_SAMPLES
