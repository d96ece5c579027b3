"""When a pass waits for more candidates."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.options import DecodingOptions
from specwhisper.speculation.arrivals import Arrival
from specwhisper.speculation.patience import PassTime, Yield, begin_ns
from specwhisper.types import AudioChunk, Candidates, Commit, Mode, WindowOpened
from specwhisper.whisper.one_process import InlineExecutor
from specwhisper.whisper.verifier import Verifier
from tests.scripted import ScriptedModel

times = st.floats(0, 1e10)
RECORDING = np.random.default_rng(0).normal(0, 1000, 16_000).astype("<i2").tobytes()


def fitted(*passes: tuple[int, float]) -> PassTime:
    pass_time = PassTime()
    for num_tokens, forward_ns in passes:
        pass_time.observe(num_tokens, forward_ns)
    return pass_time


@given(st.floats(0, 1e9), st.floats(0, 1e7), st.lists(st.integers(1, 300), min_size=2, max_size=400))
def test_a_line_is_found(constant, per_token, sizes):
    found = fitted(*((size, constant + per_token * size) for size in sizes))
    if max(sizes) - min(sizes) > 5 and len(sizes) < 20:
        assert found.per_token_ns == pytest.approx(per_token, rel=1e-6, abs=1e-3)
        assert found.constant_ns == pytest.approx(constant, rel=1e-6, abs=1)
    assert found.per_token_ns >= 0
    assert found.constant_ns >= 0


def test_without_a_pass_or_with_passes_of_one_size_nothing_counts_as_constant():
    assert PassTime().constant_ns == 0
    assert not fitted(*[(5, 1e6)] * 10).is_known
    assert fitted(*[(5, 1e6)] * 10).constant_ns == fitted(*[(5, 1e6)] * 10).per_token_ns == 0


def test_late_passes_count_more():
    fast, slow = ([(size % 50 + 1, each * (100 + size % 50)) for size in range(1000)] for each in (1e4, 5e4))
    assert fitted(*fast, *slow).constant_ns == pytest.approx(fitted(*slow).constant_ns, rel=0.05)


def test_longer_passes_that_take_less_do_not_make_tokens_cost_less_than_nothing():
    found = fitted((1, 10e6), (20, 5e6), (40, 1e6))
    assert found.per_token_ns == 0
    assert found.constant_ns == pytest.approx(16e6 / 3, rel=0.01)


@given(st.integers(0, 10**12), st.lists(st.tuples(times, times)), times)
def test_no_pass_waits_longer_than_it_can_gain(ready, expected, constant):
    arrivals = [Arrival(ready + mean, ready + mean + spread) for mean, spread in expected]
    begin = begin_ns(ready, arrivals, constant)
    assert ready <= begin <= ready + constant
    for mean_ns, bound_ns in arrivals:
        assert begin >= min(bound_ns, ready + constant) or mean_ns >= ready + constant


def test_those_that_would_be_late_are_not_waited_for():
    assert begin_ns(100, [Arrival(101, 103), Arrival(105, 109), Arrival(120, 125)], worth_ns=10) == 109
    assert begin_ns(100, [Arrival(105, 200)], worth_ns=10) == 110
    assert begin_ns(100, [Arrival(150, 151)], worth_ns=10) == 100
    assert begin_ns(100, [], worth_ns=10) == 100
    assert begin_ns(100, [Arrival(100, 101)], worth_ns=0) == 100


def test_a_verifier_waits_for_the_others():
    verifier = Verifier(ScriptedModel(2), executor=InlineExecutor(), is_patient=True)
    windows: dict[str, WindowOpened] = {}
    lengths = {"a": 0, "b": 0}

    def step() -> None:
        for name, event in verifier.step():
            if isinstance(event, WindowOpened):
                windows[name] = event
            elif isinstance(event, Commit):
                lengths[name] += len(event.tokens)

    def offer(name: str, received_ns: int) -> None:
        block = Candidates(windows[name].window.id, lengths[name], lengths[name], (5,))
        verifier.submit(name, block, received_ns)

    for name in "ab":
        verifier.open(name, Mode.SYNC, DecodingOptions(language="en"))
        verifier.submit(name, AudioChunk(0, RECORDING, is_last=True))
    step()
    step()
    for name in "ab":
        offer(name, perf_counter_ns())
    assert verifier.holds_for_s == 0  # nobody is on the way
    step()
    for name in "ab":
        verifier._sessions[name].arrivals._since_ns -= 10**10  # so it took ten seconds
        offer(name, perf_counter_ns())
    step()
    for num_tokens in (1, 2, 8):
        verifier._pass_time.observe(num_tokens, 10**12)
    assert verifier.holds_for_s == 0  # all are on their way, so there is no pass to put off
    offer("a", perf_counter_ns())
    assert 5 < verifier.holds_for_s < 100
    before = dict(lengths)
    step()  # the pass is put off,
    verifier.submit("a", Candidates(windows["a"].window.id, 0, 0, (7,)))  # what needs none is not
    assert verifier.has_work
    assert [event.tokens for _, event in verifier.step()] == [()]
    assert lengths == before and not verifier.has_work
    offer("b", perf_counter_ns())
    assert verifier.holds_for_s == 0 and verifier.has_work
    step()
    assert all(length >= 3 for length in lengths.values())


def test_self_decoding_waits_where_verification_brings_more():
    verifier = Verifier(ScriptedModel(1), executor=InlineExecutor(), is_patient=True)
    verifier.open("a", Mode.FULL, DecodingOptions(language="en"))
    verifier.submit("a", AudioChunk(0, RECORDING, is_last=True))
    for _ in range(3):
        verifier.step()
    session = verifier._sessions["a"]
    assert session.window is not None and verifier.holds_for_s == 0  # nothing is known of its draft
    length = len(session.ledger.committed)
    verifier.submit("a", Candidates(session.window.id, length, length, (5, 5)))
    verifier.step()
    session.arrivals.turnaround.observe(10**10)
    for num_tokens in (1, 2, 8):
        verifier._pass_time.observe(num_tokens, 10**12)
    verifier._yield.mean = 1.0
    assert verifier.holds_for_s == 0  # passes with candidates bring no more than others
    verifier._yield.mean = 4.0
    assert 5 < verifier.holds_for_s < 100
    verifier._pass_time = PassTime()
    assert verifier.holds_for_s == 0  # the target is through sooner than they arrive


def test_the_yield_follows_the_latest():
    mean = Yield()
    for num_tokens in [1] * 50 + [4] * 200:
        mean.observe(num_tokens)
    assert mean.mean == pytest.approx(4, abs=0.1)
