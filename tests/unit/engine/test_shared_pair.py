"""Threads share an engine on a scripted model: batches, faults, shutdown."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel, recording
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.errors import DeviceFault, InvalidRequest, UnsupportedOption
from specwhisper.model.model import MicroBatcher
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode
from tests.forks import in_fork

WAIT_S = 30
PCMS = [recording(1.0 + 0.25 * seed, seed) for seed in range(6)]
LENGTH, ALONE = DraftLength(Mode.ONE_PROCESS, 4), DraftLength(Mode.TARGET_ONLY)
ENGLISH = DecodingOptions.greedy(language="en")


def transcribe(pair: SharedPair, pcms: list, max_sessions: int = 2) -> list:
    prepared = (Prepared(pcm, ENGLISH) for pcm in pcms)
    found = dict(pair.transcribe(prepared, LENGTH, max_sessions=max_sessions))
    return [found[place].window_tokens for place in range(len(pcms))]


def alone(pcms: list[bytes]) -> list:
    return [transcript.window_tokens for transcript in InlinePair(ScriptedModel()).transcribe(pcms)]


class Together(ScriptedModel):
    """A model that encodes the first windows only when all slots have one."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.max_windows = num_slots
        self._all_there, self._slots = threading.Barrier(num_slots), set(range(num_slots))

    def encode(self, slot, recording, start_frame) -> None:
        if slot in self._slots:
            self._slots.discard(slot)
            self._all_there.wait(WAIT_S)
        super().encode(slot, recording, start_frame)


def test_windows_of_all_recordings_are_encoded_together():
    pair = SharedPair(Together(3), Together(3))
    assert transcribe(pair, PCMS[:3], max_sessions=3) == alone(PCMS[:3])


def test_texts_equal_those_of_one_thread():
    pair = SharedPair(ScriptedModel(3), ScriptedModel(3, error_rate=0.3))
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(transcribe, pair, PCMS, max_sessions) for max_sessions in (1, 2, 3, 3)]
        assert [call.result() for call in calls] == [alone(PCMS)] * 4


def test_open_recordings_finish_while_the_caller_is_busy():
    pair = SharedPair(ScriptedModel(1), ScriptedModel(1))
    busy = pair.transcribe((Prepared(pcm, ENGLISH) for pcm in PCMS), LENGTH, max_sessions=1)
    next(busy)
    assert transcribe(pair, PCMS[:2]) == alone(PCMS[:2])
    assert len(list(busy)) == len(PCMS) - 1


def test_a_recording_that_is_slow_to_read_stalls_no_other_call():
    pair = SharedPair(ScriptedModel(2), ScriptedModel(2))
    is_reading, may_read = threading.Event(), threading.Event()

    def slow():
        is_reading.set()
        assert may_read.wait(WAIT_S)
        yield PCMS[0]

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(transcribe, pair, [slow()])
        assert is_reading.wait(WAIT_S)
        assert transcribe(pair, PCMS[1:2]) == alone(PCMS[1:2])
        assert not waiting.done()
        may_read.set()
        assert waiting.result(WAIT_S) == alone(PCMS[:1])


def test_an_interrupted_call_frees_its_slots():
    """If the only slot were not freed, the next call would wait forever."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    pair = SharedPair(ScriptedModel(1), ScriptedModel(1))
    recordings = [Prepared(pcm, ENGLISH) for pcm in PCMS]
    with pytest.raises(KeyboardInterrupt):
        list(pair.transcribe(recordings, LENGTH, max_sessions=1, watch=interrupt))
    assert transcribe(pair, PCMS[:1]) == alone(PCMS[:1])


def test_refused_options_end_the_call_at_the_first_recording():
    pair = SharedPair(ScriptedModel(2, vocabulary=MULTILINGUAL))
    bad = DecodingOptions.greedy(language="fr")
    read = []

    def prepared():
        for pcm in PCMS:
            read.append(pcm)
            yield Prepared(pcm, bad)

    with pytest.raises(UnsupportedOption):
        list(pair.transcribe(prepared(), ALONE, max_sessions=1))
    assert len(read) <= 2


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


def test_a_device_fault_ends_all_calls_but_no_result():
    """The next recording of an ended one is refused by the stopped engine, as are later calls."""
    model = FaultyAtLast(4)
    pcms = [recording(1.0)] * 3 + [recording(300.0)] * 2 + [recording(1.0)]
    prepared = [Prepared(pcm, ENGLISH) for pcm in pcms]
    pair = SharedPair(model)
    results = pair.transcribe(prepared, ALONE, max_sessions=4)
    found = dict([next(results)])
    assert model.has_failed.wait(timeout=60)
    found |= dict(results)
    assert [type(found[place]) for place in range(6)] == [Transcription] * 3 + [DeviceFault] * 3
    ((_, error),) = pair.transcribe(prepared[:1], ALONE, max_sessions=1)
    assert isinstance(error, DeviceFault)


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


def test_a_bug_ends_sessions_of_a_busy_caller_and_the_engine_continues(caplog):
    model = BuggyAtLast(3)
    pair = SharedPair(model)
    recordings = [Prepared(recording(length_s), ENGLISH) for length_s in (1.0, 300.0)]
    at_rest = pair.transcribe(recordings, ALONE, max_sessions=2)
    next(at_rest)
    assert model.has_failed.wait(WAIT_S)
    # The defect may end the first one too; they are enough to fail if a slot were lost.
    begun = (pair.transcribe([Prepared(PCMS[0], ENGLISH)], ALONE, max_sessions=1) for _ in range(5))
    _, *transcripts = [transcript for results in begun for _, transcript in results]
    assert [transcript.window_tokens for transcript in transcripts] == 4 * alone(PCMS[:1])
    assert caplog.messages.count("engine failed") == 1
    ((_, error),) = at_rest
    assert isinstance(error, LookupError)


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pair"}


def test_the_engine_thread_ends_with_the_pair():
    before = engine_threads()
    pair = SharedPair(ScriptedModel(1))
    (_,) = pair.transcribe([Prepared(PCMS[0], ENGLISH)], ALONE, max_sessions=1)
    (thread,) = engine_threads() - before
    del pair
    gc.collect()
    thread.join(WAIT_S)
    assert not thread.is_alive()


class Encoding(ScriptedModel):
    """A model that encodes in batches; in the parent all windows but the first only if the test allows it."""

    def __init__(self, num_slots: int, num_first: int = 0) -> None:
        super().__init__(num_slots)
        self._num_first = num_first
        self.parent_id, self.has_begun, self.may_end = os.getpid(), threading.Event(), threading.Event()
        self._batcher = MicroBatcher(self._encode, 1)

    def encode(self, slot, recording, start_frame) -> None:
        self._batcher.run((slot, recording, start_frame))

    def _encode(self, windows) -> None:
        self._num_first -= 1
        if os.getpid() == self.parent_id and self._num_first < 0:
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
    model = Encoding(1, num_first=1)
    recordings = [Prepared(pcm, ENGLISH) for pcm in PCMS[:2]]
    results = SharedPair(model).transcribe(recordings, ALONE, max_sessions=1)
    next(results)
    assert model.has_begun.wait(WAIT_S)
    try:
        found = in_fork(lambda: [(place, str(error)) for place, error in results])
    finally:
        model.may_end.set()
    assert found == [(1, "These results are the parent process's: begin a call in this one.")]
    assert [place for place, _ in results] == [1]
