"""A model that wraps another one and knows the window of each slot."""

from __future__ import annotations

from specwhisper.audio.recording import Recording
from specwhisper.model.model import Model


class Wrapping:
    """Forwards every method but :meth:`score`, which subclasses define.

    ``_places`` has for each slot the samples of its recording and the first frame of its window.
    """

    def __init__(self, model: Model) -> None:
        self.vocabulary, self.num_slots = model.vocabulary, model.num_slots
        self.num_mel_bins, self.max_positions = model.num_mel_bins, model.max_positions
        self.max_windows = model.max_windows
        self.rollback, self.length = model.rollback, model.length
        self.can_continue = model.can_continue
        self.tokenize, self.align, self.has_word_times = model.tokenize, model.align, model.has_word_times
        self._model = model
        self._places: list[tuple[int, int]] = [(0, 0)] * model.num_slots

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Encode and record the slot's window."""
        self._places[slot] = (recording.received_samples, start_frame)
        self._model.encode(slot, recording, start_frame)
