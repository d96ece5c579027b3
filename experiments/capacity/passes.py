"""Time forward passes on the target's cores while nothing else runs there."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from experiments.capacity.models import Measured
from experiments.capacity.usage import Meter, MeteredModel
from experiments.common.audio.samples import Sample
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row
from specwhisper.types import AudioChunk

REPEATS = 40


class PassTimer:
    """Times forward passes of the target's model in its own process.

    Parameters
    ----------
    held : tokens in every slot before a forward pass.
    """

    def __init__(self, measured: Measured, sample: Sample, num_slots: int, held: int) -> None:
        self._meter = Meter()
        self._meter.own()
        self._model = MeteredModel(measured.weights(), num_slots, self._meter)
        self._held = held
        # A timestamp, then any text.
        self._text = [self._model.vocabulary.timestamp_begin, *[1] * (held - 1)]
        recording = Recording(sample.log_mel_max)
        recording.append(AudioChunk(0, sample.pcm, is_last=True))
        for slot in range(num_slots):
            self._model.encode(slot, recording, 0)
        self._model.score([self._row(slot, self._text, 0) for slot in range(num_slots)])

    def bytes_per_slot(self) -> int:
        """Return the model's memory per session."""
        return self._model.bytes_per_slot

    def times_s(self, sizes: Iterable[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """Return the CPU time of forward passes by (sessions, tokens of each), measured in turn."""
        sizes = sorted(set(sizes))
        taken: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
        for _ in range(REPEATS):
            for batch_size, width in sizes:
                rows = [self._row(slot, [1] * width, width - 1) for slot in range(batch_size)]
                before_s = self._meter.read().forward_s
                self._model.score(rows)
                taken[batch_size, width].append(self._meter.read().forward_s - before_s)
                for slot in range(batch_size):
                    self._model.rollback(slot, self._held)
        return {size: median(times_s) for size, times_s in taken.items()}

    def _row(self, slot: int, tokens: list[int], num_candidates: int) -> Row:
        return Row(slot, tokens, num_candidates, self._text, timestamps=True)
