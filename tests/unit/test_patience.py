"""When a pass waits for more candidates."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.scripted import ScriptedModel
from specwhisper.engine.one_process import InlineExecutor
from specwhisper.engine.verifier import MAX_SILENCE_NS, Verifier
from specwhisper.options import DecodingOptions
from specwhisper.speculation.arrivals import Arrival
from specwhisper.speculation.patience import MAX_WAIT, Patience
from specwhisper.types import AudioChunk, Candidates, Commit, Mode, WindowOpened

times = st.floats(0, 1e10)
RECORDING = np.random.default_rng(0).normal(0, 1000, 16_000).astype("<i2").tobytes()


def patience(forward_ns: float) -> Patience:
    """Give what is known after passes that took so long."""
    found = Patience()
    found.observe(forward_ns)
    return found


@given(st.integers(0, 10**12), st.lists(st.tuples(times, times)), times)
def test_no_pass_waits_longer_than_a_share_of_it(ready, expected, forward_ns):
    arrivals = [Arrival(ready + mean, ready + mean + spread) for mean, spread in expected]
    begin = patience(forward_ns).begin_ns(ready, arrivals)
    last = ready + MAX_WAIT * forward_ns
    assert ready <= begin <= last
    for mean_ns, bound_ns in arrivals:
        assert begin >= min(bound_ns, last) or mean_ns >= last


def test_those_that_would_be_late_are_not_waited_for():
    ten = patience(10 / MAX_WAIT)
    assert ten.begin_ns(100, [Arrival(101, 103), Arrival(105, 109), Arrival(120, 125)]) == 109
    assert ten.begin_ns(100, [Arrival(105, 200)]) == pytest.approx(110)
    assert ten.begin_ns(100, [Arrival(150, 151)]) == 100
    assert ten.begin_ns(100, []) == 100
    assert Patience().begin_ns(100, [Arrival(100, 101)]) == 100  # nothing is known of passes


def test_patience_follows_the_latest_passes():
    found = patience(1e6)
    for _ in range(300):
        found.observe(6e6)
    assert found.begin_ns(0, [Arrival(0, 1e9)]) == pytest.approx(MAX_WAIT * 6e6, rel=0.01)


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
    verifier._patience = patience(10**12)
    assert not verifier.has_work  # all are on their way, so there is no pass to put off
    offer("a", perf_counter_ns())
    assert 4 < verifier.holds_for_s < 100  # without any news it would not wait longer than five for the other
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


def test_self_decoding_waits_for_what_is_all_but_there():
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
    verifier._patience = patience(10**12)
    assert 5 < verifier.holds_for_s < 100
    verifier._patience = patience(10**10)
    assert verifier.holds_for_s == 0  # the target is through sooner than they arrive


def test_a_target_that_waited_in_vain_goes_on_and_is_no_busier_for_it():
    now_ns = 0
    verifier = Verifier(
        ScriptedModel(1), executor=InlineExecutor(), clock=lambda: now_ns, latency_budget_ms=100.0
    )
    verifier.open("a", Mode.SYNC, DecodingOptions(language="en"))
    verifier.submit("a", AudioChunk(0, RECORDING, is_last=True))
    while verifier.has_work:
        verifier.step()
    assert verifier.holds_for_s == MAX_SILENCE_NS / 1e9
    now_ns += MAX_SILENCE_NS
    assert verifier.has_work
    commits = [event for _, event in verifier.step() if isinstance(event, Commit)]
    assert [(len(commit.tokens), commit.num_self_decoded) for commit in commits] == [(1, 1)]
    assert commits[0].timing.queue_ns == 0
    assert verifier._answer_time.expected_ms(1) < 1
    assert not verifier.has_work
