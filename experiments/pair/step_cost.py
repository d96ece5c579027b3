"""Time one decoder step of several models in turn, as the engine runs it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row
from specwhisper.model.model import Model
from specwhisper.types import SAMPLE_RATE, AudioChunk

HELD = 60  # tokens in the slot: the middle of a window of speech
UNTIMED = 10  # first steps take longer


def step_milliseconds(models: Mapping[str, Model], rounds: int) -> dict[str, float]:
    """Return the median processor time of a step of one token, of all threads.

    In each round every model takes one step. Processor time leaves out the waiting for a core that other
    programs use.
    """
    rows = {name: _prepare(model) for name, model in models.items()}
    timings: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(UNTIMED + rounds):
        for name, model in models.items():
            started_s = time.process_time()
            model.score([rows[name]])
            timings[name].append((time.process_time() - started_s) * 1000)
            model.rollback(0, HELD)
    return {name: statistics.median(times[UNTIMED:]) for name, times in timings.items()}


def _prepare(model: Model) -> Row:
    """Fill a slot; return the row of one more token."""
    recording = Recording()
    recording.append(AudioChunk(0, bytes(2 * SAMPLE_RATE), is_last=True))
    model.encode(0, recording, 0)
    vocabulary = model.vocabulary
    text = [vocabulary.timestamp_begin, *[0] * (HELD - 2)]
    model.score([Row(0, [vocabulary.start_of_transcript, *text], 0, text, timestamps=True)])
    return Row(0, [0], 0, [*text, 0], timestamps=True)
