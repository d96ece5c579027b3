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
    start_sample, end_sample : where its audio begins and ends; so far, while it grows.
    is_complete : whether it grows no longer.
    is_broken : whether its client ended it in speech: no later text is decoded after its text.
    """

    utterance: int
    start_sample: int
    end_sample: int
    is_complete: bool = False
    is_last: bool = False
    is_broken: bool = False


class LivePieces:
    """The pieces of a session that have no final text.

    Draft and target follow them alike.

    Attributes
    ----------
    num_complete : pieces that were completed, with those that have final text.
    """

    def __init__(self, position: LivePosition) -> None:
        self.received_samples = position.next_sample
        self.has_ended = False
        self._complete: deque[Piece] = deque()
        self.num_complete = 0
        self._growing_from = position.next_sample if position.is_speech else None
        self._utterance = position.num_utterances
        self._is_continued = position.is_speech  # whether a piece of the utterance is complete
        self._boundary = position.next_sample  # the end of the last piece

    def append_audio(self, end_sample: int, marks: Sequence[VoiceMark], *, is_last: bool = False) -> None:
        begins_from = self.received_samples - MAX_LOOK_BACK_SAMPLES
        self.received_samples = max(self.received_samples, end_sample)
        for mark in marks:
            self._follow(mark, begins_from)
        self.has_ended |= is_last
        self._cut_before(self.received_samples)
        if is_last:
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
        start = self._complete[0].start_sample if self._complete else self._growing_from
        if start is not None:
            return start
        return max(self._boundary, _rounded_down(self.received_samples - MAX_LOOK_BACK_SAMPLES))

    def finish_current(self) -> Piece:
        """Remove the oldest piece, which is complete: it has final text."""
        return self._complete.popleft()

    @property
    def _growing(self) -> Piece | None:
        start, end = self._growing_from, _rounded_down(self.received_samples)
        return None if start is None or end <= start else Piece(self._utterance, start, end)

    def _follow(self, mark: VoiceMark, begins_from: int) -> None:
        """Follow a mark; one that contradicts the state is ignored."""
        sample = min(mark.sample, self.received_samples)
        if mark.event is not VoiceEvent.BEGIN:
            self._cut_before(sample)
            is_broken = mark.event is VoiceEvent.BREAK
            self._complete_at(sample, is_last=is_broken or mark.event is VoiceEvent.END, is_broken=is_broken)
        elif self._growing_from is None:
            self._utterance += 1
            self._is_continued = False
            self._growing_from = max(_rounded_down(max(sample, begins_from)), self._boundary)

    def _cut_before(self, sample: int) -> None:
        """Cut what no mark has cut in time."""
        while self._growing_from is not None and sample - self._growing_from > MAX_PIECE_SAMPLES:
            self._complete_at(self._growing_from + MAX_PIECE_SAMPLES, is_last=False)

    def _complete_at(self, sample: int, *, is_last: bool, is_broken: bool = False) -> None:
        """Complete the piece that grows, if one does."""
        start, received = self._growing_from, self.received_samples
        if start is None:
            return
        if not is_last:
            end = _rounded_down(sample)
            if not start < end < received:  # the utterance ends with a piece, so audio follows a cut
                return
        else:
            end = min(max(_rounded_up(sample), start + PIECE_SAMPLES), received)
            if end <= start:  # it has no audio yet
                if not self._is_continued:
                    self._growing_from, self._utterance = None, self._utterance - 1
                    self._boundary = start  # what is before it is freed
                return
        self._complete.append(Piece(self._utterance, start, end, True, is_last, is_broken))
        self.num_complete += 1
        self._boundary, self._is_continued = _rounded_up(end), True
        self._growing_from = None if is_last else self._boundary


def _rounded_down(sample: int) -> int:
    return sample // PIECE_SAMPLES * PIECE_SAMPLES


def _rounded_up(sample: int) -> int:
    return -(-sample // PIECE_SAMPLES) * PIECE_SAMPLES
