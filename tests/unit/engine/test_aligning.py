"""Alignments run beside forward passes, and change no text."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import ScriptedModel, recording
from experiments.common.models.speech import SpeechModel
from specwhisper.engine.pair_engine import PairEngine, PairSession
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.engine.verifier import Verifier
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import AudioChunk, Commit, Finished, Limits, Mode
from tests.live_engines import TALK, LivePair, transcribe
from tests.nightly import examples

MAX_CHECKS = 40
TIMED = DecodingOptions.greedy(language="en", word_timestamps=True)
PLAIN = DecodingOptions.greedy(language="en")
PCMS = [recording(length_s, seed) for seed, length_s in enumerate((31.0, 1.0, 2.0, 3.0))]


class ManualExecutor(Executor):
    """Keeps submitted calls until :meth:`run`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self, num_calls: int = 1) -> None:
        for _ in range(num_calls):
            future, fn = self.waiting.pop(0)
            future.set_result(fn())


class DelayedExecutor(Executor):
    """Runs a call at the engine's ``num_checks``-th check whether it is done."""

    def __init__(self, num_checks: int) -> None:
        self.num_waiting = 0
        self._num_checks = num_checks

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        checks = count(1)
        self.num_waiting += 1

        def is_done() -> bool:
            if next(checks) == self._num_checks:
                self.num_waiting -= 1
                try:
                    future.set_result(fn(*args, **kwargs))
                except Exception as error:
                    future.set_exception(error)
            return Future.done(future)

        future.done = is_done  # type: ignore[method-assign]
        return future


class DelayedLivePair(LivePair):
    """A live pair that is not idle during an alignment."""

    def __init__(self, num_checks: int, *models: ScriptedModel) -> None:
        self._executor = DelayedExecutor(num_checks)
        super().__init__(*models, aligner=self._executor)

    def advance_target(self) -> bool:
        return super().advance_target() or self._executor.num_waiting > 0


def open_session(verifier: Verifier, name: str, pcm: bytes, options: DecodingOptions) -> None:
    verifier.open(name, Mode.TARGET_ONLY, options)
    verifier.submit(name, AudioChunk(0, pcm, is_last=True))


def run_until_idle(verifier: Verifier) -> list[tuple[str, Any]]:
    events = []
    num_idle = 0
    while num_idle < MAX_CHECKS:
        num_idle = 0 if verifier.has_work else num_idle + 1
        events += verifier.step()
    return events


def tokens_of(events: Sequence[tuple[str, Any]], name: str) -> list[int]:
    return [t for session, e in events if session == name and isinstance(e, Commit) for t in e.tokens]


def text(pcm: bytes, options: DecodingOptions = PLAIN) -> list[int]:
    verifier = Verifier(ScriptedModel(1))
    open_session(verifier, "only", pcm, options)
    return tokens_of(run_until_idle(verifier), "only")


@pytest.mark.timeout(600)
@settings(max_examples=examples(8, 20), deadline=None)
@given(
    mode=st.sampled_from([Mode.TARGET_ONLY, Mode.ONE_PROCESS, Mode.SYNC, Mode.PIPELINED, Mode.FULL]),
    num_checks=st.integers(1, MAX_CHECKS),
    gamma=st.integers(1, 8),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.5, 1.0)]),
    seed=st.integers(0, 100),
)
def test_words_and_text_do_not_depend_on_the_time_of_an_alignment(
    mode, num_checks, gamma, temperatures, seed
):
    options = DecodingOptions.greedy(
        language="en", word_timestamps=True, temperatures=temperatures, logprob_threshold=-0.48
    )
    expected = InlinePair(ScriptedModel(len(PCMS), seed=seed)).transcribe(PCMS, options)
    target = ScriptedModel(3, seed=seed)
    draft = None if mode is Mode.TARGET_ONLY else ScriptedModel(5, seed=seed, error_rate=0.2)
    engine = PairEngine(target, draft, aligner=DelayedExecutor(num_checks))
    length = DraftLength(mode, gamma)
    sessions = [PairSession(str(i), pcm, length, options, target.vocabulary) for i, pcm in enumerate(PCMS)]
    for session in sessions:
        engine.open(session)
    results = {}
    while engine.num_sessions:
        for session_id, event in engine.step():
            results[int(session_id)] = sessions[int(session_id)].observe(event)
    for number, transcript in enumerate(expected):
        assert results[number].window_tokens == transcript.window_tokens
        assert results[number].segments == transcript.segments


@settings(max_examples=examples(8, 20), deadline=None)
@given(num_checks=st.integers(1, MAX_CHECKS), seed=st.integers(0, 100))
def test_live_text_does_not_depend_on_the_time_of_an_alignment(num_checks, seed):
    options = DecodingOptions.greedy(live=LiveOptions(), language="en", word_timestamps=True)
    expected = transcribe(LivePair(SpeechModel(seed=seed)), TALK, options)
    pair = DelayedLivePair(num_checks, SpeechModel(seed=seed), SpeechModel(seed=seed, error_rate=0.2))
    assert transcribe(pair, TALK, options) == expected


def test_a_closed_session_frees_its_slot_at_once():
    executor = ManualExecutor()
    verifier = Verifier(ScriptedModel(1), aligner=executor)
    open_session(verifier, "first", PCMS[1], TIMED)
    run_until_idle(verifier)
    (future, _), num_free = executor.waiting[0], verifier.num_free_slots
    assert future.set_running_or_notify_cancel()  # it runs already, so it cannot be cancelled
    verifier.close("first")
    assert (num_free, verifier.num_free_slots) == (0, 1)
    open_session(verifier, "next", PCMS[3], PLAIN)
    events = verifier.step()
    executor.waiting.clear()
    future.set_result(((), (), 0))  # its slot belongs to the next session now
    events += run_until_idle(verifier)
    assert {session for session, _ in events} == {"next"} and events[-1] == ("next", Finished())
    assert tokens_of(events, "next") == text(PCMS[3])


def test_a_queued_alignment_of_a_closed_session_does_not_run():
    executor = ManualExecutor()
    verifier = Verifier(ScriptedModel(1), aligner=executor)
    open_session(verifier, "first", PCMS[1], TIMED)
    run_until_idle(verifier)
    verifier.close("first")
    assert executor.waiting[0][0].cancelled()


class FailingAligner(ScriptedModel):
    """Fails to align, except in slot 0."""

    def align(self, slot, window, tokens, num_frames):
        def fail():
            raise ValueError("no words")

        return super().align(slot, window, tokens, num_frames) if slot == 0 else fail


def test_an_error_in_an_alignment_ends_its_own_session_only():
    verifier = Verifier(FailingAligner(3), aligner=DelayedExecutor(5))
    for number in range(3):
        open_session(verifier, str(number), PCMS[number], TIMED if number < 2 else PLAIN)
    events = run_until_idle(verifier)
    last = dict(events)
    assert isinstance(last["0"], Finished) and isinstance(last["2"], Finished)
    assert str(last["1"].error) == "no words"
    finals = [e for session, e in events if session == "0" and isinstance(e, Commit) and e.is_final]
    assert finals and all(final.words and final.num_align_forwards == 1 for final in finals)
    assert verifier.num_free_slots == 1


class WaitingAligner(ScriptedModel):
    """Aligns only after the other session has finished."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.has_finished = threading.Event()

    def align(self, slot, window, tokens, num_frames):
        end = super().align(slot, window, tokens, num_frames)

        def find():
            assert self.has_finished.wait(30)
            return end()

        return find


async def test_a_target_engine_aligns_beside_its_thread():
    model = WaitingAligner(2)
    engine = TargetEngine(model, limits=Limits(max_sessions=2))

    async def tokens(name: str, pcm: bytes, options: DecodingOptions) -> list[int]:
        events: asyncio.Queue[Any] = asyncio.Queue()
        async with engine.session(name, Mode.TARGET_ONLY, options, events.put_nowait):
            chunk = AudioChunk(0, pcm, is_last=True)
            engine.thread.post(partial(engine.verifier.submit, name, chunk))
            found = []
            while not isinstance(event := await events.get(), Finished):
                found += [(name, event)]
            return tokens_of(found, name)

    timed = asyncio.create_task(tokens("timed", PCMS[1], TIMED))
    assert await tokens("other", PCMS[2], PLAIN) == text(PCMS[2])
    model.has_finished.set()
    assert await timed == text(PCMS[1])
    await engine.stop()


def test_a_shared_pair_aligns_beside_its_thread():
    model = WaitingAligner(2)
    pair = SharedPair(model)
    recordings = [Prepared(PCMS[1], TIMED), Prepared(PCMS[2], PLAIN)]
    ended = pair.transcribe(recordings, DraftLength(Mode.TARGET_ONLY), max_sessions=2)
    assert next(ended)[0] == 1
    model.has_finished.set()
    number, transcript = next(ended)
    assert number == 0 and [t for window in transcript.window_tokens for t in window] == text(PCMS[1])
