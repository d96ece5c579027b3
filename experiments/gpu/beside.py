"""Forward passes beside an encoder that never pauses, and capturing beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from threading import Event, Thread

import numpy as np

from experiments.gpu.figures import Check
from experiments.gpu.texts import noise, recording_of
from experiments.gpu.weights import Weights
from specwhisper.model.choosing import Row
from specwhisper.model.model import WhisperModel

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


def measure_beside(weights: Weights, *, dtype: str) -> Iterator[Beside]:
    """Time whole passes alone and beside the encoder."""
    model = _model(weights, dtype)
    for is_encoding in (False, True):
        times_ms = []
        with encoding(model, weights) if is_encoding else nullcontext():
            for _ in range(QUICK_TIMES if weights.place.is_narrow else TIMES):
                started_s = time.perf_counter()
                model.score(_rows(SESSIONS, WIDTH))
                times_ms.append((time.perf_counter() - started_s) * 1e3)
                _rollback(model)
        p95_ms = float(np.percentile(times_ms, 95))
        yield Beside(weights.name, dtype, is_encoding, median(times_ms), p95_ms)


def check_capture(weights: Weights, dtype: str) -> Iterator[Check]:
    """Capture graphs while windows are encoded; compare their choices with those of graphs captured alone."""
    alone, beside = _model(weights, dtype), _model(weights, dtype)
    with encoding(beside, weights):
        started_s = time.perf_counter()
        beside.warm_up()
        took_s = time.perf_counter() - started_s
    num_same = 0
    for num_rows, width in REPLAYED:
        expected, found = (model.score(_rows(num_rows, width)) for model in (alone, beside))
        num_same += [one.tokens for one in expected] == [one.tokens for one in found]
        _rollback(alone)
        _rollback(beside)
    yield Check(
        f"{weights.name}: captured beside an encoder, {dtype}",
        num_same == len(REPLAYED),
        f"in {took_s:.1f} s; {num_same} of {len(REPLAYED)} passes choose the same",
    )


@contextmanager
def encoding(model: WhisperModel, weights: Weights) -> Iterator[None]:
    """Encode windows into the last slots meanwhile, from as many threads."""
    stop, failures = Event(), list[BaseException]()

    def encode(slot: int) -> None:
        recording = recording_of(noise((weights.place.seed, slot), 10.0))
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
        model.encode(slot, recording_of(noise((weights.place.seed, slot), 10.0)), 0)
        model.score([Row(slot, [7] * PROMPT, 0, (), timestamps=False)])
    return model


def _rows(num_rows: int, width: int) -> list[Row]:
    return [Row(slot, [7 + slot] * width, width - 1, (7,), timestamps=True) for slot in range(num_rows)]


def _rollback(model: WhisperModel) -> None:
    for slot in range(SESSIONS):
        model.rollback(slot, PROMPT)
