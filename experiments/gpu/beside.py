"""Forward passes beside an encoder that never pauses, and capturing beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from threading import Event, Thread

import numpy as np

from experiments.gpu.identity import Check
from experiments.gpu.texts import Texts
from experiments.gpu.weights import Weights
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row
from specwhisper.model.model import WhisperModel
from specwhisper.types import AudioChunk

PROMPT = 4
WIDTH = 5
TIMES, QUICK_TIMES = 200, 3
SESSIONS = 8
ENCODING_SLOTS = 4
REPLAYED = ((1, 1), (1, 5), (3, 2), (5, 5), (8, 4))  # sessions and tokens, each in a bucket of its own


@dataclass(frozen=True, slots=True)
class Beside:
    """Milliseconds from call to choices of a pass of 8 sessions x 5 tokens.

    Attributes
    ----------
    is_encoding : whether windows are encoded all the time, four at once.
    """

    shape: str
    dtype: str
    is_encoding: bool
    median_ms: float
    p95_ms: float


def measure_beside(weights: Weights, *, dtype: str) -> list[Beside]:
    """Time whole passes alone and beside the encoder."""
    model, found = _model(weights, dtype), []
    for is_encoding in (False, True):
        if is_encoding:
            with encoding(model, weights):
                times = _times_ms(model, weights)
        else:
            times = _times_ms(model, weights)
        p95 = float(np.percentile(times, 95))
        found.append(Beside(weights.name, dtype, is_encoding, median(times), p95))
    return found


def check_capture(weights: Weights, dtype: str) -> Check:
    """Capture graphs while windows are encoded; compare their choices with those of graphs captured alone."""
    alone, beside = _model(weights, dtype), _model(weights, dtype)
    with encoding(beside, weights):
        started_s = time.perf_counter()
        beside.warm_up()
        took_s = time.perf_counter() - started_s
    num_same = 0
    for num_rows, width in REPLAYED:
        rows = [Row(slot, [7 + slot] * width, width - 1, (7,), timestamps=True) for slot in range(num_rows)]
        expected, found = (model.score(rows) for model in (alone, beside))
        num_same += [one.tokens for one in expected] == [one.tokens for one in found]
        _rollback(alone)
        _rollback(beside)
    return Check(
        f"{weights.name}: captured beside an encoder, {dtype}",
        num_same == len(REPLAYED),
        f"in {took_s:.1f} s; {num_same} of {len(REPLAYED)} passes choose the same",
    )


@contextmanager
def encoding(model: WhisperModel, weights: Weights) -> Iterator[None]:
    """Encode windows into the last slots meanwhile, from as many threads."""
    stop, failures = Event(), list[BaseException]()

    def encode(slot: int) -> None:
        recording = _recording(weights, slot)
        try:
            while not stop.is_set():
                model.encode(slot, recording, 0)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=encode, args=(SESSIONS + i,)) for i in range(ENCODING_SLOTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _model(weights: Weights, dtype: str) -> WhisperModel:
    model = WhisperModel(
        weights.checkpoint(dtype),
        SESSIONS + ENCODING_SLOTS,
        device=weights.place.device,
        has_static_shapes=True,
    )
    for slot in range(SESSIONS):
        model.encode(slot, _recording(weights, slot), 0)
        model.score([Row(slot, [7] * PROMPT, 0, (), timestamps=False)])
    return model


def _rows() -> list[Row]:
    return [Row(slot, [7 + slot] * WIDTH, WIDTH - 1, (7,), timestamps=True) for slot in range(SESSIONS)]


def _rollback(model: WhisperModel) -> None:
    for slot in range(SESSIONS):
        model.rollback(slot, PROMPT)


def _times_ms(model: WhisperModel, weights: Weights) -> list[float]:
    times = []
    for _ in range(QUICK_TIMES if weights.place.is_narrow else TIMES):
        started_s = time.perf_counter()
        model.score(_rows())
        times.append((time.perf_counter() - started_s) * 1e3)
        _rollback(model)
    return times


def _recording(weights: Weights, number: int) -> Recording:
    recording = Recording()
    recording.append(AudioChunk(0, Texts(1, 1, 1.0, weights.place.seed).recording(number), is_last=True))
    return recording
