"""Threads share an engine on a scripted model: batches, faults, shutdown."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel, recording
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.engine.verifier import Verifier
from specwhisper.errors import DeviceFault, InvalidRequest, UnsupportedOption
from specwhisper.model.model import MicroBatcher
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import AudioChunk, Mode
from tests.forks import in_fork

WAIT_S = 30
PCMS = [recording(1.0 + 0.25 * seed, seed) for seed in range(6)]
LENGTH = DraftLength(Mode.ONE_PROCESS, 4)
ENGLISH = DecodingOptions.greedy(language="en")


def transcribe(pair: SharedPair, pcms: list[bytes], max_sessions: int = 2) -> list:
    prepared = (Prepared(pcm, ENGLISH) for pcm in pcms)
    found = dict(pair.transcribe(prepared, LENGTH, max_sessions=max_sessions))
    return [found[place].window_tokens for place in range(len(pcms))]


def alone(pcms: list[bytes]) -> list:
    return [transcript.window_tokens for transcript in InlinePair(ScriptedModel()).transcribe(pcms)]


def test_texts_equal_those_of_one_thread():
    pair = SharedPair(ScriptedModel(3), ScriptedModel(3, error_rate=0.3))
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(transcribe, pair, PCMS, max_sessions) for max_sessions in (1, 2, 3, 3)]
        assert [call.result() for call in calls] == [alone(PCMS)] * 4


class Together(ScriptedModel):
    """A model that encodes the first windows only when all slots have one."""

    def __init__(self, num_windows: int) -> None:
        super().__init__(num_windows)
        self.max_windows = num_windows
        self._all_there = threading.Barrier(num_windows)
        self._slots = set(range(num_windows))

    def encode(self, slot, recording, start_frame) -> None:
        if slot in self._slots:
            self._slots.discard(slot)
            self._all_there.wait(WAIT_S)
        super().encode(slot, recording, start_frame)


def test_windows_of_all_recordings_are_encoded_together():
    pair = SharedPair(Together(3), Together(3))
    assert transcribe(pair, PCMS[:3], max_sessions=3) == alone(PCMS[:3])


def test_open_recordings_finish_while_the_caller_is_busy():
    pair = SharedPair(ScriptedModel(1), ScriptedModel(1))
    busy = pair.transcribe((Prepared(pcm, ENGLISH) for pcm in PCMS), LENGTH, max_sessions=1)
    next(busy)
    assert transcribe(pair, PCMS[:2]) == alone(PCMS[:2])
    assert len(list(busy)) == len(PCMS) - 1


def test_refused_options_end_the_call_at_the_first_recording():
    pair = SharedPair(ScriptedModel(2, vocabulary=MULTILINGUAL))
    bad = DecodingOptions.greedy(language="fr")
    read = []

    def prepared():
        for pcm in PCMS:
            read.append(pcm)
            yield Prepared(pcm, bad)

    with pytest.raises(UnsupportedOption):
        list(pair.transcribe(prepared(), DraftLength(Mode.TARGET_ONLY), max_sessions=1))
    assert len(read) <= 2


class Faulty(ScriptedModel):
    """A model whose device has failed permanently."""

    def score(self, rows):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_device_fault_ends_every_call_and_later_ones_at_once():
    pair = SharedPair(Faulty(2))
    for _ in range(2):
        with pytest.raises(DeviceFault):
            found = dict(
                pair.transcribe([Prepared(PCMS[0], ENGLISH)], DraftLength(Mode.TARGET_ONLY), max_sessions=1)
            )
            raise found[0]


class FaultyAtLast(ScriptedModel):
    """A model that fails in a forward pass that only a long recording reaches."""

    NUM_PASSES = 100

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.has_failed = threading.Event()

    def score(self, rows):
        if self.num_forwards > self.NUM_PASSES:
            self.has_failed.set()
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().score(rows)


def test_a_device_fault_keeps_a_result_while_the_next_recording_opens():
    """The next recording of an ended one is refused by the stopped engine."""
    model, length = FaultyAtLast(4), DraftLength(Mode.TARGET_ONLY)
    pcms = [recording(1.0)] * 3 + [recording(300.0)] * 2 + [recording(1.0)]
    prepared = [Prepared(pcm, ENGLISH) for pcm in pcms]
    results = SharedPair(model).transcribe(prepared, length, max_sessions=4)
    found = dict([next(results)])
    assert model.has_failed.wait(timeout=60)
    found |= dict(results)
    assert [type(found[place]) for place in range(6)] == [Transcription] * 3 + [DeviceFault] * 3


class Buggy(ScriptedModel):
    """A model that breaks the engine itself, once."""

    has_failed = False

    def length(self, slot: int) -> int:
        if not self.has_failed and self.num_forwards > 3:
            self.has_failed = True
            raise LookupError("a defect")
        return super().length(slot)


def test_a_bug_ends_open_calls_and_the_engine_continues():
    pair = SharedPair(Buggy(2))
    length = DraftLength(Mode.TARGET_ONLY)
    ((_, failed),) = pair.transcribe([Prepared(PCMS[0], ENGLISH)], length, max_sessions=1)
    assert isinstance(failed, LookupError)
    for _ in range(3):  # enough to fail if a slot were lost
        ((_, transcript),) = pair.transcribe([Prepared(PCMS[0], ENGLISH)], length, max_sessions=1)
        assert transcript.window_tokens == alone(PCMS[:1])[0]


class BuggyAtLast(ScriptedModel):
    """A model that breaks the engine while a slot holds a certain window."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.has_failed, self.bad_slots = threading.Event(), set()

    def encode(self, slot, recording, start_frame) -> None:
        self.bad_slots.discard(slot)
        super().encode(slot, recording, start_frame)

    def length(self, slot: int) -> int:
        if self.num_forwards > FaultyAtLast.NUM_PASSES and not self.has_failed.is_set():
            self.bad_slots.add(slot)
            self.has_failed.set()
        if slot in self.bad_slots:
            raise LookupError("a defect")
        return super().length(slot)


def test_a_bug_ends_sessions_of_a_busy_caller(caplog):
    model, length = BuggyAtLast(3), DraftLength(Mode.TARGET_ONLY)
    pair = SharedPair(model)
    at_rest = pair.transcribe(
        [Prepared(recording(1.0), ENGLISH), Prepared(recording(300.0), ENGLISH)], length, max_sessions=2
    )
    next(at_rest)
    assert model.has_failed.wait(WAIT_S)
    begun = (pair.transcribe([Prepared(PCMS[0], ENGLISH)], length, max_sessions=1) for _ in range(2))
    (_, (_, transcript)) = [next(results) for results in begun]  # the defect may end the first one too
    assert transcript.window_tokens == alone(PCMS[:1])[0]
    assert caplog.messages.count("engine failed") == 1
    ((_, error),) = at_rest
    assert isinstance(error, LookupError)


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pair"}


def test_the_engine_thread_ends_with_the_pair():
    before = engine_threads()
    pair = SharedPair(ScriptedModel(1))
    (_,) = pair.transcribe([Prepared(PCMS[0], ENGLISH)], DraftLength(Mode.TARGET_ONLY), max_sessions=1)
    (thread,) = engine_threads() - before
    del pair
    gc.collect()
    thread.join(WAIT_S)
    assert not thread.is_alive()


class Encoding(ScriptedModel):
    """A model that encodes in batches; in the parent only if the test allows it."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.parent_id, self.has_begun, self.may_end = os.getpid(), threading.Event(), threading.Event()
        self._batcher = MicroBatcher(self._encode, 1)

    def encode(self, slot, recording, start_frame) -> None:
        self._batcher.run((slot, recording, start_frame))

    def _encode(self, windows) -> None:
        if os.getpid() == self.parent_id:
            self.has_begun.set()
            assert self.may_end.wait(2 * WAIT_S)
        for window in windows:
            super().encode(*window)


def refusal(pair: SharedPair) -> str:
    with pytest.raises(InvalidRequest) as raised:
        transcribe(pair, PCMS[2:4])
    return str(raised.value)


def test_a_process_forked_while_another_thread_transcribes_is_refused():
    model = Encoding(2)
    pair = SharedPair(model, ScriptedModel(2))
    with ThreadPoolExecutor(1) as threads:
        in_parent = threads.submit(transcribe, pair, PCMS[:2])
        assert model.has_begun.wait(WAIT_S)
        try:
            assert in_fork(partial(refusal, pair)).startswith("This process was forked while recordings were")
        finally:
            model.may_end.set()
        assert in_parent.result(WAIT_S) == alone(PCMS[:2])


def test_results_of_a_call_before_the_fork_stay_with_the_parent():
    model = Encoding(1)
    long = recording(1_800.0, 1)  # so that it is not done when the process forks
    results = SharedPair(model).transcribe(
        (Prepared(pcm, ENGLISH) for pcm in (PCMS[0], long)), DraftLength(Mode.TARGET_ONLY), max_sessions=1
    )
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: model.has_begun.wait(WAIT_S) and model.may_end.set())
        next(results)
    found = in_fork(lambda: [(place, str(error)) for place, error in results])
    assert found == [(1, "These results are the parent process's: begin a call in this one.")]
    assert [place for place, _ in results] == [1]


@pytest.mark.parametrize("kind", [Verifier, Drafter])
def test_encodings_of_a_slot_run_in_order(kind):
    """With several threads, a session's window waits for the last session's."""
    has_begun, may_end, order = threading.Event(), threading.Event(), []

    class Slow(ScriptedModel):
        def encode(self, slot, recording, start_frame):
            if not has_begun.is_set():
                has_begun.set()
                assert may_end.wait(WAIT_S)
            order.append(recording.received_samples)
            super().encode(slot, recording, start_frame)

    opened = {}

    def open_with_audio(name: str, pcm: bytes) -> None:
        verifier = Verifier(ScriptedModel(1))
        engine = opened.get(kind) or kind(Slow(1), executor=threads)
        opened[kind] = engine
        verifier.open(name, Mode.TARGET_ONLY, ENGLISH)
        chunk = AudioChunk(0, pcm, is_last=True)
        verifier.submit(name, chunk)
        if kind is Verifier:
            engine.open(name, Mode.TARGET_ONLY, ENGLISH)
            engine.submit(name, chunk)
            engine.step()
        else:
            engine.open(name, LENGTH, ENGLISH, max_ahead_tokens=64)
            engine.submit(name, chunk)
            engine.submit(name, verifier.step()[0][1])

    with ThreadPoolExecutor(3) as threads:
        open_with_audio("first", PCMS[0])
        assert has_begun.wait(WAIT_S)
        opened[kind].close("first")
        open_with_audio("next", PCMS[1])
        threads.submit(may_end.set)  # the third thread: the second waits, or has overtaken
    assert order == [len(PCMS[0]) // 2, len(PCMS[1]) // 2]
