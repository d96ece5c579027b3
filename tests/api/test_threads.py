"""Threads that share one ``SpeculativeWhisper``: their texts, forward passes and failures."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from experiments.common.audio.samples import bundled
from specwhisper import SpeculativeConfig, SpeculativeWhisper
from specwhisper.audio.decode import decode_file
from specwhisper.engine.pair_engine import PairSession
from specwhisper.errors import InvalidAudio, SpecWhisperError
from specwhisper.types import SAMPLE_RATE, AudioChunk
from tests.forks import in_fork
from tests.nightly import examples, mostly_nightly

NUM_THREADS = examples(4, 8)
WAIT_S = 60
OPTIONS = {"language": "en"}
TARGET, DRAFT = "demo-target", "demo-draft-tiny"


def load_pair(batch_size: int, draft: str | None = DRAFT) -> SpeculativeWhisper:
    return SpeculativeWhisper(draft, TARGET, device="cpu", batch_size=batch_size)


@pytest.fixture(scope="module")
def pair() -> SpeculativeWhisper:
    return load_pair(NUM_THREADS)


@pytest.fixture(scope="module")
def one_slot() -> SpeculativeWhisper:
    return load_pair(1)


@pytest.fixture(scope="module")
def recordings() -> list[np.ndarray]:
    """Cuts of 2 to 4 s with different words."""
    paths = bundled()
    return [cut(paths[i % len(paths)], i, 2 + i % 3) for i in range(NUM_THREADS)]


def cut(path: Path, start_s: int, length_s: int) -> np.ndarray:
    end, pcm = 2 * (start_s + length_s) * SAMPLE_RATE, b""
    for block in decode_file(path):
        pcm += block
        if len(pcm) >= end:
            break
    return np.frombuffer(pcm[2 * start_s * SAMPLE_RATE : end], "<i2")


@pytest.fixture(scope="module")
def texts(pair, recordings) -> list[str]:
    """The text of each recording, transcribed in one thread."""
    return [pair.transcribe(audio, **OPTIONS).text for audio in recordings]


def in_threads(calls: list[Callable[[], object]]) -> list[Future]:
    """Run each call in a thread of its own, all at once, and wait for them."""
    together = threading.Barrier(len(calls))

    def call(one: Callable[[], object]) -> object:
        together.wait(WAIT_S)
        return one()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [threads.submit(call, one) for one in calls]


def test_the_recordings_have_different_texts(texts):
    assert len(set(texts)) == len(texts), "otherwise these tests could not notice a swapped text"


@pytest.mark.parametrize("has_draft", mostly_nightly([True, False]))
def test_a_call_that_begins_while_another_decodes_changes_no_text(pair, recordings, texts, has_draft):
    """Each call begins once the previous one has text: the staggered starts of a service."""
    model = pair if has_draft else pair.without_draft()
    has_begun = [threading.Event() for _ in recordings]

    def transcribe(number: int) -> str:
        if number:
            assert has_begun[number - 1].wait(WAIT_S)

        def watch(_: int, builder) -> None:
            if builder.verified_text or builder.segments:
                has_begun[number].set()

        try:
            return model.transcribe(recordings[number], watch=watch, **OPTIONS).text
        finally:
            has_begun[number].set()

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        assert list(threads.map(transcribe, range(NUM_THREADS))) == texts


def test_all_threads_share_a_forward_pass(recordings, texts, monkeypatch):
    target_only = load_pair(NUM_THREADS, draft=None)
    model, batches, all_encoded = target_only.final_model, [], threading.Barrier(NUM_THREADS)
    encode, score = model.encode, model.score

    def encode_together(slot, recording, start_frame) -> None:
        encode(slot, recording, start_frame)
        all_encoded.wait(WAIT_S)  # then all sessions decode at once

    def counted(rows):
        batches.append(len(rows))
        return score(rows)

    monkeypatch.setattr(model, "max_windows", NUM_THREADS)
    monkeypatch.setattr(model, "encode", encode_together)
    monkeypatch.setattr(model, "score", counted)
    calls = [lambda audio=audio: target_only.transcribe(audio, **OPTIONS) for audio in recordings]
    results = [future.result() for future in in_threads(calls)]
    assert [result.text for result in results] == texts
    assert max(batches) == NUM_THREADS
    assert sum(batches) == sum(result.stats.num_forwards for result in results)
    assert len(batches) <= sum(batches) / 2, "forward passes are shared"


def test_a_call_that_fails_affects_no_other(pair, recordings, texts):
    broken = np.full(1_000, np.nan, np.float32)
    bad = [
        lambda: pair.transcribe(broken, **OPTIONS),
        lambda: pair.transcribe(np.zeros(0, np.int16), **OPTIONS),
        lambda: pair.transcribe(recordings[0], language="Klingon"),
        lambda: pair.transcribe(recordings[0], watch=lambda place, builder: 1 // 0, **OPTIONS),
    ]
    good = [lambda audio=audio: pair.transcribe(audio, **OPTIONS).text for audio in recordings]
    futures = in_threads([*bad, *good])
    kinds = (InvalidAudio, InvalidAudio, SpecWhisperError, ZeroDivisionError)
    for future, kind in zip(futures, kinds, strict=False):
        assert isinstance(future.exception(), kind)
    assert [future.result() for future in futures[len(bad) :]] == texts


def test_a_process_that_was_forked_later_writes_the_same_text(recordings, texts, monkeypatch):
    monkeypatch.setattr("specwhisper.model.backends._limit", 2)  # the other process has none of them
    pair = load_pair(1)
    assert pair.transcribe(recordings[0], **OPTIONS).text == texts[0]
    assert in_fork(lambda: pair.transcribe(recordings[1], **OPTIONS).text) == texts[1]


@pytest.mark.timeout(120)
def test_an_interrupted_call_frees_its_slots(one_slot, recordings, texts):
    """If the only slot were not freed, the next call would wait forever."""

    def interrupt(place: int, builder) -> None:
        raise KeyboardInterrupt

    for _ in range(examples(1, 3)):
        with pytest.raises(KeyboardInterrupt):
            one_slot.transcribe(recordings[:3], watch=interrupt, **OPTIONS)
        assert one_slot.transcribe(recordings[1], **OPTIONS).text == texts[1]


@pytest.mark.timeout(120)
def test_a_recording_that_is_slow_to_read_stalls_no_other_call(pair, recordings, texts, monkeypatch):
    is_reading, may_read = threading.Event(), threading.Event()
    next_chunk = PairSession.next_chunk

    def slow(session: PairSession) -> AudioChunk:
        is_reading.set()
        assert may_read.wait(WAIT_S)
        return next_chunk(session)

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(PairSession, "next_chunk", slow)
        future = threads.submit(lambda: pair.transcribe(recordings[0], **OPTIONS).text)
        assert is_reading.wait(WAIT_S)
        monkeypatch.undo()
        assert pair.transcribe(recordings[1], **OPTIONS).text == texts[1]
        assert not future.done()
        may_read.set()
        assert future.result(WAIT_S) == texts[0]


def test_an_iterator_has_the_config_of_its_call(one_slot, recordings, monkeypatch):
    monkeypatch.setattr(one_slot, "config", SpeculativeConfig(gamma=1))
    results = one_slot.transcribe_iter(recordings[:1], **OPTIONS)
    one_slot.config = SpeculativeConfig(gamma=7)
    ((_, result),) = results
    assert len(result.stats.acceptance_histogram) <= 1 + 1
