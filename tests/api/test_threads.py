"""Threads that share one ``SpeculativeWhisper``: their texts, forward passes and failures."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from experiments.exactness.prepared import recording
from specwhisper import SpeculativeConfig, SpeculativeWhisper
from specwhisper.errors import InvalidAudio, SpecWhisperError
from tests.forks import in_fork
from tests.nightly import examples

NUM_THREADS = examples(4, 8)
WAIT_S = 60
OPTIONS = {"language": "en", "max_new_tokens": 12, "temperature": 0.0}  # random weights fail each temperature


@pytest.fixture(scope="module")
def load_pair(tmp_path_factory) -> Callable[[int], SpeculativeWhisper]:
    """Return a function that loads a pair of random weights with a number of slots."""
    folder = str(save_checkpoint(Shape(seed=11, scale=0.3), tmp_path_factory.mktemp("models") / "random"))
    return lambda batch_size: SpeculativeWhisper(folder, folder, device="cpu", batch_size=batch_size)


@pytest.fixture(scope="module")
def pair(load_pair) -> SpeculativeWhisper:
    return load_pair(NUM_THREADS)


@pytest.fixture(scope="module")
def recordings() -> list[np.ndarray]:
    return [np.frombuffer(recording(seed, 2 + seed % 3), "<i2") for seed in range(NUM_THREADS)]


@pytest.fixture(scope="module")
def texts(pair, recordings) -> list:
    """The tokens of each recording, transcribed in one thread."""
    tokens = [pair.transcribe(audio, **OPTIONS).window_tokens for audio in recordings]
    assert len(set(map(str, tokens))) == len(tokens), "otherwise a swapped text would not be noticed"
    return tokens


def in_threads(calls: list[Callable[[], object]]) -> list[Future]:
    """Run each call in a thread of its own, all at once, and wait for them."""
    together = threading.Barrier(len(calls))

    def call(one: Callable[[], object]) -> object:
        together.wait(WAIT_S)
        return one()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [threads.submit(call, one) for one in calls]


def test_a_call_that_fails_affects_no_other(pair, recordings, texts):
    broken = np.full(1_000, np.nan, np.float32)
    bad = [
        lambda: pair.transcribe(broken, **OPTIONS),
        lambda: pair.transcribe(np.zeros(0, np.int16), **OPTIONS),
        lambda: pair.transcribe(recordings[0], language="Klingon"),
        lambda: pair.transcribe(recordings[0], watch=lambda place, builder: 1 // 0, **OPTIONS),
    ]
    good = [lambda audio=audio: pair.transcribe(audio, **OPTIONS).window_tokens for audio in recordings]
    futures = in_threads([*bad, *good])
    kinds = (InvalidAudio, InvalidAudio, SpecWhisperError, ZeroDivisionError)
    for future, kind in zip(futures, kinds, strict=False):
        assert isinstance(future.exception(), kind)
    assert [future.result() for future in futures[len(bad) :]] == texts


def test_a_process_that_was_forked_later_writes_the_same_text(load_pair, recordings, texts, monkeypatch):
    monkeypatch.setattr("specwhisper.model.backends._limit", 2)  # the other process has none of them
    pair = load_pair(1)
    assert pair.transcribe(recordings[0], **OPTIONS).window_tokens == texts[0]
    assert in_fork(lambda: pair.transcribe(recordings[1], **OPTIONS).window_tokens) == texts[1]


def test_an_iterator_has_the_config_of_its_call(pair, recordings, monkeypatch):
    monkeypatch.setattr(pair, "config", SpeculativeConfig(gamma=1))
    results = pair.transcribe_iter(recordings[:1], **OPTIONS)
    pair.config = SpeculativeConfig(gamma=7)
    ((_, result),) = results
    assert len(result.stats.acceptance_histogram) <= 1 + 1
