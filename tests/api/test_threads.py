"""One ``SpeculativeWhisper`` for many threads: right texts, shared forward passes, failures kept apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from experiments.common.audio.samples import load_samples
from specwhisper import SpeculativeConfig, SpeculativeWhisper
from specwhisper.engine.pair_engine import Feed
from specwhisper.errors import InvalidAudio, SpecWhisperError
from specwhisper.types import SAMPLE_RATE, AudioChunk

NUM_THREADS = 8
WAIT_S = 60
ASKED = {"language": "en"}
TARGET, DRAFT = "demo-target", "demo-draft-tiny"


def demo(batch_size: int, draft: str | None = DRAFT) -> SpeculativeWhisper:
    return SpeculativeWhisper(draft, TARGET, device="cpu", batch_size=batch_size)


@pytest.fixture(scope="module")
def pair() -> SpeculativeWhisper:
    return demo(NUM_THREADS)


@pytest.fixture(scope="module")
def recordings() -> list[np.ndarray]:
    """Cuts of 2 to 4 s, each with words of its own."""
    samples = [np.frombuffer(sample.pcm, "<i2") for sample in load_samples(None)]
    cuts = [samples[i % len(samples)][i * SAMPLE_RATE :] for i in range(NUM_THREADS)]
    return [cut[: (2 + i % 3) * SAMPLE_RATE] for i, cut in enumerate(cuts)]


@pytest.fixture(scope="module")
def texts(pair, recordings) -> list[str]:
    """What one thread writes of each recording."""
    return [pair.transcribe(audio, **ASKED).text for audio in recordings]


def in_threads(calls: list[Callable[[], object]]) -> list[Future]:
    """Start all calls at once, each in a thread, and wait for them."""
    together = threading.Barrier(len(calls))

    def call(one: Callable[[], object]) -> object:
        together.wait(WAIT_S)
        return one()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [threads.submit(call, one) for one in calls]


def test_each_recording_has_words_of_its_own(texts):
    assert len(set(texts)) == len(texts), "else these tests could not see a mixed-up text"


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_call_that_begins_while_another_decodes_changes_no_text(pair, recordings, texts, is_alone):
    """Each call begins when the one before it has written something: the staggered starts of a service."""
    model = pair.without_draft() if is_alone else pair
    has_begun = [threading.Event() for _ in recordings]

    def transcribe(place: int) -> str:
        if place:
            assert has_begun[place - 1].wait(WAIT_S)

        def watch(_: int, builder) -> None:
            if builder.verified_text or builder.segments:
                has_begun[place].set()

        try:
            return model.transcribe(recordings[place], watch=watch, **ASKED).text
        finally:
            has_begun[place].set()

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        assert list(threads.map(transcribe, range(NUM_THREADS))) == texts


def test_threads_with_and_without_a_draft_share_the_slots(pair, recordings, texts):
    alone = pair.without_draft()
    calls = [
        lambda model=model, audio=audio: model.transcribe(audio, **ASKED)
        for audio in recordings
        for model in (pair, alone)
    ]
    results = [future.result() for future in in_threads(calls)]
    assert [result.text for result in results] == [text for text in texts for _ in range(2)]
    assert all(result.stats.counts.num_verified > 0 for result in results[::2])
    assert all(result.stats.counts.num_verified == 0 for result in results[1::2])


def test_eight_threads_are_a_batch_of_eight(recordings, texts, monkeypatch):
    alone = demo(NUM_THREADS, draft=None)
    model, batches, all_encoded = alone.final_model, [], threading.Barrier(NUM_THREADS)
    encode, score = model.encode, model.score

    def encode_together(slot, recording, start_frame) -> None:
        encode(slot, recording, start_frame)
        all_encoded.wait(WAIT_S)  # all sessions go on from here at once

    def counted(rows):
        batches.append(len(rows))
        return score(rows)

    monkeypatch.setattr(model, "max_windows", NUM_THREADS)
    monkeypatch.setattr(model, "encode", encode_together)
    monkeypatch.setattr(model, "score", counted)
    calls = [lambda audio=audio: alone.transcribe(audio, **ASKED) for audio in recordings]
    results = [future.result() for future in in_threads(calls)]
    assert [result.text for result in results] == texts
    assert max(batches) == NUM_THREADS
    assert sum(batches) == sum(result.stats.counts.num_forwards for result in results)
    assert len(batches) <= sum(batches) / 2, "forward passes are shared"


def test_a_call_that_fails_fails_alone(pair, recordings, texts):
    broken = np.append(recordings[0].astype(np.float32) / 32768, np.float32("nan"))
    bad = [
        lambda: pair.transcribe(broken, **ASKED),
        lambda: pair.transcribe(np.zeros(0, np.int16), **ASKED),
        lambda: pair.transcribe(recordings[0], initial_prompt="wood " * 300, language="en"),
        lambda: pair.transcribe(recordings[0], watch=lambda place, builder: 1 // 0, **ASKED),
    ]
    good = [lambda audio=audio: pair.transcribe(audio, **ASKED).text for audio in recordings]
    futures = in_threads([*bad, *good])
    kinds = (InvalidAudio, InvalidAudio, SpecWhisperError, ZeroDivisionError)
    for future, kind in zip(futures, kinds, strict=False):
        assert isinstance(future.exception(), kind)
    assert [future.result() for future in futures[len(bad) :]] == texts


@pytest.mark.timeout(120)
def test_an_interrupted_call_frees_its_slots(recordings, texts):
    """With one slot, a slot that is lost would let the next call wait for ever."""
    pair = demo(1)

    def interrupt(place: int, builder) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            pair.transcribe(recordings[:3], watch=interrupt, **ASKED)
        assert pair.transcribe(recordings[1], **ASKED).text == texts[1]


@pytest.mark.timeout(120)
def test_an_iterator_that_is_left_frees_its_slots(recordings, texts):
    pair = demo(2)
    results = pair.transcribe_iter(recordings * 4, **ASKED)
    place, first = next(results)
    assert first.text == texts[place]
    results.close()
    assert [result.text for result in pair.transcribe(recordings[:3], **ASKED)] == texts[:3]


@pytest.mark.timeout(120)
def test_an_iterator_at_rest_holds_no_slot(recordings, texts):
    pair = demo(2)
    waiting = pair.transcribe_iter(recordings, **ASKED)
    place, first = next(waiting)
    assert [result.text for result in pair.transcribe(recordings[:3], **ASKED)] == texts[:3]
    rest = dict(waiting) | {place: first}
    assert [rest[place].text for place in sorted(rest)] == texts


@pytest.mark.timeout(120)
def test_a_recording_that_is_slow_to_read_stalls_no_other_call(pair, recordings, texts, monkeypatch):
    is_asked, may_answer = threading.Event(), threading.Event()
    next_chunk = Feed.next_chunk

    def slow(feed: Feed) -> AudioChunk:
        is_asked.set()
        assert may_answer.wait(WAIT_S)
        return next_chunk(feed)

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(Feed, "next_chunk", slow)
        future = threads.submit(lambda: pair.transcribe(recordings[0], **ASKED).text)
        assert is_asked.wait(WAIT_S)
        monkeypatch.undo()
        assert pair.transcribe(recordings[1], **ASKED).text == texts[1]
        assert not future.done()
        may_answer.set()
        assert future.result(WAIT_S) == texts[0]


def test_an_iterator_has_the_config_of_its_call(recordings):
    pair = demo(1)
    pair.config = SpeculativeConfig(gamma=1)
    results = pair.transcribe_iter(recordings[:1], **ASKED)
    pair.config = SpeculativeConfig(gamma=7)
    ((_, result),) = results
    assert len(result.stats.acceptance_histogram) <= 1 + 1


def test_each_call_has_the_config_of_its_beginning(recordings):
    pair = demo(NUM_THREADS)
    configs = [SpeculativeConfig(gamma=1 + i, temperature=1.5, seed=i) for i in range(4)]
    expected, futures = [], []
    for config in configs:
        pair.config = config
        expected.append(pair.transcribe(recordings[0], **ASKED).text)
    with ThreadPoolExecutor(len(configs)) as threads:
        for config in configs:
            has_begun = threading.Event()
            pair.config = config
            watch = lambda place, builder, has_begun=has_begun: has_begun.set()  # noqa: E731
            futures.append(threads.submit(pair.transcribe, recordings[0], watch=watch, **ASKED))
            assert has_begun.wait(WAIT_S)
        assert [future.result().text for future in futures] == expected
    assert len(set(expected)) > 1
