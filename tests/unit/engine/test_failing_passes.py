"""Forward passes without enough memory are repeated in halves; no text changes."""

import asyncio
import threading
from concurrent.futures import Future

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, ScriptedModel
from specwhisper.engine import engine_thread
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.engine_thread import EngineThread
from specwhisper.engine.verifier import Verifier
from specwhisper.errors import DeviceFault, OutOfMemory, ServerFull
from specwhisper.model.backend import is_device_fault, is_out_of_memory
from specwhisper.model.model import MicroBatcher
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import AudioChunk, Failed, Finished, Mode, Window, WindowOpened
from tests.nightly import examples
from tests.rpc.services import recording

PCMS = [recording(length_s, seed) for seed, length_s in enumerate((0.5, 1.0, 33.0, 0.7, 2.0))]
MODES = [Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL]
NO_MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB."
ASSERT = "CUDA error: device-side assert triggered"


class Allocated:
    """Counts its living instances."""

    num_alive = 0

    def __init__(self) -> None:
        Allocated.num_alive += 1

    def __del__(self) -> None:
        Allocated.num_alive -= 1


class ShortOfMemory(ScriptedModel):
    """Fails for lack of memory in some passes with more than ``fits`` sessions.

    The memory of a failed forward pass must be free when it is repeated.
    """

    def __init__(self, num_slots: int, fits: int, every: int, **kwargs) -> None:
        super().__init__(num_slots, **kwargs)
        self._fits = fits
        self._every = every

    def score(self, rows):
        allocated = Allocated()
        assert allocated.num_alive == 1
        scores = super().score(rows)
        if len(rows) > self._fits and self.num_forwards % self._every == 0:
            raise torch.OutOfMemoryError(NO_MEMORY)
        return scores


@settings(max_examples=examples(by_day=10, at_night=60))
@given(
    mode=st.sampled_from(MODES),
    fits=st.integers(1, 4),
    every=st.integers(1, 4),
    language=st.sampled_from(["en", None]),
    gamma=st.integers(1, 9),
)
def test_forward_passes_that_are_too_large_change_no_text(mode, fits, every, language, gamma):
    options = DecodingOptions.greedy(language=language)
    expected = [
        InlinePair(ScriptedModel(vocabulary=MULTILINGUAL)).transcribe([pcm], options)[0].window_tokens
        for pcm in PCMS
    ]
    target = ShortOfMemory(len(PCMS), fits, every, vocabulary=MULTILINGUAL)
    draft = ShortOfMemory(len(PCMS), fits, every, error_rate=0.3, vocabulary=MULTILINGUAL)
    split = InlinePair(target, None if mode is Mode.TARGET_ONLY else draft, mode=mode, gamma=gamma)
    assert [t.window_tokens for t in split.transcribe(PCMS, options)] == expected


class FailingSlot(ScriptedModel):
    """Fails in every forward pass with the given slot."""

    def __init__(self, num_slots: int, slot: int, error: Exception) -> None:
        super().__init__(num_slots)
        self._slot = slot
        self._error = error

    def score(self, rows):
        scores = super().score(rows)
        if any(row.slot == self._slot for row in rows):
            raise self._error
        return scores


def new_verifier(model: ScriptedModel) -> Verifier:
    """Return a target with a session in each slot that has its whole audio."""
    verifier = Verifier(model)
    for number in range(model.num_slots):
        verifier.open(str(number), Mode.TARGET_ONLY, DecodingOptions.greedy(language="en"))
        verifier.submit(str(number), AudioChunk(0, recording(1.0, number), is_last=True))
    return verifier


def ends_of(verifier: Verifier) -> dict[str, Finished | Failed]:
    ends = {}
    while verifier.has_work:
        ends |= {session: e for session, e in verifier.step() if isinstance(e, Finished | Failed)}
    return ends


def test_only_the_session_without_memory_fails_after_few_forward_passes():
    model = FailingSlot(16, 3, torch.OutOfMemoryError(NO_MEMORY))
    verifier = new_verifier(model)
    while verifier.num_free_slots == 0:
        num_before = model.num_forwards
        events = verifier.step()
    assert model.num_forwards - num_before == 9  # one of 16, and two of each half that holds it
    (failed,) = [(session, event.error) for session, event in events if isinstance(event, Failed)]
    assert failed[0] == "3" and type(failed[1]) is OutOfMemory
    assert not failed[1].__context__  # a context would keep the tensors of the forward pass
    ends = ends_of(verifier)
    assert len(ends) == 15 and all(isinstance(end, Finished) for end in ends.values())


@pytest.mark.parametrize("broken", ["score", "encode"])
def test_a_device_fault_ends_an_engine(broken, monkeypatch):
    def fail(*_: object) -> None:
        raise torch.AcceleratorError(ASSERT)

    model = ScriptedModel(2)
    monkeypatch.setattr(model, broken, fail)
    with pytest.raises(DeviceFault, match="device-side assert"):
        ends_of(new_verifier(model))
    drafter = Drafter(model)
    for name in ("0", "1"):
        drafter.open(name, DraftLength(Mode.FULL), DecodingOptions.greedy(language="en"), max_ahead_tokens=64)
        drafter.submit(name, AudioChunk(0, recording(1.0), is_last=True))
        window = Window(1, 0, 3000, (1, 2), max_new_tokens=20)
        drafter.submit(name, WindowOpened(window))
    with pytest.raises(DeviceFault, match=r"The draft's device has failed: .*device-side assert"):
        while drafter.has_work:
            drafter.step()


@pytest.mark.parametrize("is_action", [False, True])
async def test_no_step_follows_a_fault_in_a_step_or_an_action(is_action):
    def fail() -> None:
        raise DeviceFault(ASSERT)

    model, faults = FailingSlot(2, 1, torch.AcceleratorError(ASSERT)), []
    thread = EngineThread("faulty", on_fault=faults.append)
    events: asyncio.Queue = asyncio.Queue()
    thread.subscribe("0", events.put_nowait)
    if is_action:
        thread.post(fail)
    thread.start(new_verifier(model))
    while not isinstance(event := await events.get(), Failed):
        assert isinstance(event, WindowOpened)
    assert isinstance(event.error, DeviceFault)
    thread.post(lambda: None)
    await thread.stop()
    assert [type(fault) for fault in faults] == [DeviceFault]
    assert model.num_forwards == int(not is_action)


async def test_an_engine_that_does_not_stop_is_a_fault(monkeypatch):
    monkeypatch.setattr(engine_thread, "ENDS_WITHIN_S", 0.05)
    may_end, faults = threading.Event(), []
    thread = EngineThread("hanging", on_fault=faults.append)
    thread.start(new_verifier(ScriptedModel(1)))
    thread.post(may_end.wait)
    await thread.stop()
    may_end.set()
    assert [type(fault) for fault in faults] == [DeviceFault]


def test_a_repeated_encoding_has_the_memory_of_the_first():
    def work(items):
        allocated = Allocated()
        assert allocated.num_alive == 1
        if len(items) > 1:
            raise torch.OutOfMemoryError(NO_MEMORY)

    done = [Future[None]() for _ in range(4)]
    MicroBatcher(work, 4)._process(list(enumerate(done)))
    assert [one.result() for one in done] == [None] * 4


@pytest.mark.parametrize(
    ("error", "no_memory", "fault"),
    [
        (torch.OutOfMemoryError(NO_MEMORY), True, False),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True, False),
        (RuntimeError("CUDA error: out of memory"), True, False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True, False),
        (RuntimeError("HIP error: out of memory"), True, False),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True, False),
        (MemoryError(), True, False),
        (RuntimeException("Failed to allocate memory for requested buffer of size 5"), True, False),
        (Fail("Exception during initialization: std::bad_alloc"), True, False),
        (Fail("Load model failed"), False, False),
        (torch.AcceleratorError(ASSERT), False, True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False, True),
        (RuntimeError("Triton Error [CUDA]: unspecified launch failure"), False, True),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), False, False),
        (RuntimeError("out of memory, or so I think"), False, False),
        (ServerFull("The illegal memory access is only a word here."), False, False),
    ],
)
def test_errors_are_recognised(error, no_memory, fault):
    assert (is_out_of_memory(error), is_device_fault(error)) == (no_memory, fault)
