"""Processor time of forward passes and encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from time import process_time

from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row
from specwhisper.model.model import Model

UNTIMED = 5  # first passes take longer
NUM_ENCODINGS = 3
Size = tuple[int, int]  # sessions, tokens of each


def pass_times_s(
    models: Mapping[str, Model], recording: Recording, held: int, sizes: Sequence[Size], repeats: int
) -> dict[str, dict[Size, float]]:
    """Return medians by model and size, of passes over slots that hold some tokens; all take turns.

    It is the time of all threads: it leaves out the waiting for a core that other programs use.
    """
    texts = {name: [model.vocabulary.timestamp_begin, *[1] * (held - 1)] for name, model in models.items()}
    for name, model in models.items():
        slots = range(max(num_slots for num_slots, _ in sizes))
        for slot in slots:
            model.encode(slot, recording, 0)
        model.score([Row(slot, texts[name], 0, texts[name], timestamps=True) for slot in slots])
    taken: dict[str, dict[Size, list[float]]] = {name: {size: [] for size in sizes} for name in models}
    for _ in range(UNTIMED + repeats):
        for name, model in models.items():
            for num_slots, width in sizes:
                tokens = [1] * width
                slots = range(num_slots)
                started_s = process_time()
                model.score([Row(slot, tokens, width - 1, texts[name], timestamps=True) for slot in slots])
                taken[name][num_slots, width].append(process_time() - started_s)
                for slot in slots:
                    model.rollback(slot, held)
    return {
        name: {size: median(times_s[UNTIMED:]) for size, times_s in of_model.items()}
        for name, of_model in taken.items()
    }


def encode_s(model: Model, recording: Recording) -> float:
    """Return the median time of encoding the first window."""
    taken = []
    for _ in range(NUM_ENCODINGS):
        started_s = process_time()
        model.encode(0, recording, 0)
        taken.append(process_time() - started_s)
    return median(taken)
