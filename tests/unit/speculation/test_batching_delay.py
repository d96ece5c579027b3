"""Forward passes wait for candidates that are about to arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specwhisper.speculation.batching_delay import MAX_DELAY, BatchingDelay

from experiments.common.models.scripted import ScriptedModel
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.verifier import CANDIDATES_TIMEOUT_NS, Verifier
from specwhisper.options import DecodingOptions
from specwhisper.speculation.arrivals import Arrival
from specwhisper.types import AudioChunk, Candidates, Commit, Mode, WindowOpened

NOW_NS = 10**12
times = st.floats(0, 1e10)
RECORDING = np.random.default_rng(0).normal(0, 1000, 16_000).astype("<i2").tobytes()


def delay(forward_ns: float) -> BatchingDelay:
    """Return the delay after one forward pass of ``forward_ns``."""
    found = BatchingDelay()
    found.observe(forward_ns)
    return found


@given(st.integers(0, 10**12), st.lists(st.tuples(times, times)), times)
def test_a_delay_is_at_most_a_share_of_the_forward_time(ready, expected, forward_ns):
    arrivals = [Arrival(ready + mean, ready + mean + spread) for mean, spread in expected]
    start = delay(forward_ns).start_ns(ready, arrivals)
    last = ready + MAX_DELAY * forward_ns
    assert ready <= start <= last
    for mean_ns, bound_ns in arrivals:
        assert start >= min(bound_ns, last) or mean_ns >= last


def test_late_candidates_are_not_waited_for():
    ten = delay(10 / MAX_DELAY)
    assert ten.start_ns(100, [Arrival(101, 103), Arrival(105, 109), Arrival(120, 125)]) == 109
    assert ten.start_ns(100, [Arrival(105, 200)]) == pytest.approx(110)
    assert ten.start_ns(100, [Arrival(150, 151)]) == 100
    assert ten.start_ns(100, []) == 100
    assert BatchingDelay().start_ns(100, [Arrival(100, 101)]) == 100  # no forward pass was observed


def test_the_delay_follows_the_latest_forward_passes():
    found = delay(1e6)
    for _ in range(300):
        found.observe(6e6)
    assert found.start_ns(0, [Arrival(0, 1e9)]) == pytest.approx(MAX_DELAY * 6e6, rel=0.01)


def test_a_verifier_waits_for_other_sessions():
    verifier = Verifier(
        ScriptedModel(2), executor=InlineExecutor(), clock=lambda: NOW_NS, has_batching_delay=True
    )
    windows: dict[str, WindowOpened] = {}
    lengths = {"a": 0, "b": 0}

    def step() -> None:
        for name, event in verifier.step():
            if isinstance(event, WindowOpened):
                windows[name] = event
            elif isinstance(event, Commit):
                lengths[name] += len(event.tokens)

    def offer(name: str) -> None:
        block = Candidates(windows[name].window.id, lengths[name], lengths[name], (5,))
        verifier.submit(name, block, NOW_NS)

    for name in "ab":
        verifier.open(name, Mode.SYNC, DecodingOptions.greedy(language="en"))
        verifier.submit(name, AudioChunk(0, RECORDING, is_last=True))
    step()
    step()
    for name in "ab":
        offer(name)
    assert verifier.wake_after_s == 0  # no candidates are expected
    step()
    for name in "ab":
        verifier._sessions[name].arrivals._since_ns -= 10**10  # so their turnaround is ten seconds
        offer(name)
    step()
    verifier._batching._delay = delay(10**12)
    assert not verifier.has_work  # candidates of all sessions are expected: there is no forward pass to delay
    offer("a")
    assert 4 < verifier.wake_after_s < 100  # it would wait at most 5 s for the other
    before = dict(lengths)
    step()  # the forward pass is delayed,
    verifier.submit("a", Candidates(windows["a"].window.id, 0, 0, (7,)))  # an answer without one is not
    assert verifier.has_work
    assert [event.tokens for _, event in verifier.step()] == [()]
    assert lengths == before and not verifier.has_work
    offer("b")
    assert verifier.wake_after_s == 0 and verifier.has_work
    step()
    assert all(length >= 3 for length in lengths.values())


def test_self_decoding_waits_for_candidates_about_to_arrive():
    verifier = Verifier(
        ScriptedModel(1), executor=InlineExecutor(), clock=lambda: NOW_NS, has_batching_delay=True
    )
    verifier.open("a", Mode.FULL, DecodingOptions.greedy(language="en"))
    verifier.submit("a", AudioChunk(0, RECORDING, is_last=True))
    for _ in range(3):
        verifier.step()
    session = verifier._sessions["a"]
    assert session.open_window is not None and verifier.wake_after_s == 0  # its draft sent nothing yet
    length = len(session.open_window.ledger.committed)
    verifier.submit("a", Candidates(session.open_window.window.id, length, length, (5,)))
    verifier.step()
    session.arrivals.turnaround.observe(10**10)
    session.reconsider()
    verifier._batching._delay = delay(10**12)
    assert 5 < verifier.wake_after_s < 100
    verifier._batching._delay = delay(10**10)
    assert verifier.wake_after_s == 0  # a forward pass ends before they arrive


def opened(verifier: Verifier, name: str):
    """Open a session in ``full`` and its window."""
    verifier.open(name, Mode.FULL, DecodingOptions.greedy(language="en"))
    verifier.submit(name, AudioChunk(0, RECORDING, is_last=True))
    for _ in range(3):
        verifier.step()
    return verifier._sessions[name]


@pytest.mark.parametrize(
    ("session_ns", "is_late", "waits"), [(1e12, False, True), (0.0, False, False), (1e12, True, False)]
)
def test_a_session_waits_for_its_candidates_beside_others_unless_it_is_worth_its_part(
    session_ns, is_late, waits
):
    verifier = Verifier(ScriptedModel(2), executor=InlineExecutor(), clock=lambda: NOW_NS)
    first, second = (opened(verifier, name) for name in "ab")
    for session in (first, second):
        window, length = session.open_window.window, len(session.open_window.ledger.committed)
        verifier.submit(session.id, Candidates(window.id, length, length, (5,)), NOW_NS)
    verifier.step()
    verifier._batching.time.session_ns = session_ns
    verifier._batching._throughput.observe(10, 1e6, NOW_NS)
    second.arrivals.turnaround.observe(-1.0 if is_late else 10.0**10)
    second.arrivals.turnaround.spread = 0.0
    second.reconsider()
    length = len(first.open_window.ledger.committed)
    verifier.submit(first.id, Candidates(first.open_window.window.id, length, length, (5,)), NOW_NS)
    assert second.is_runnable and second.derived.next_candidates is not None
    chosen = verifier._batching.choose(verifier._sessions.values())
    assert (first in chosen, second in chosen) == (True, not waits)


def test_no_session_waits_for_its_candidates_if_all_could():
    verifier = Verifier(ScriptedModel(2), executor=InlineExecutor(), clock=lambda: NOW_NS)
    sessions = [opened(verifier, name) for name in "ab"]
    for session in sessions:
        window, length = session.open_window.window, len(session.open_window.ledger.committed)
        verifier.submit(session.id, Candidates(window.id, length, length, (5,)), NOW_NS)
    verifier.step()
    verifier._batching.time.session_ns = 1e12
    for session in sessions:
        session.arrivals.turnaround.observe(10.0**10)
        session.reconsider()
        assert session.derived.next_candidates is not None
    assert list(verifier._batching.choose(verifier._sessions.values())) == sessions


def test_a_target_that_waited_in_vain_continues_and_its_response_time_does_not_count():
    now_ns = 0
    verifier = Verifier(
        ScriptedModel(1), executor=InlineExecutor(), clock=lambda: now_ns, latency_budget_ms=100.0
    )
    verifier.open("a", Mode.SYNC, DecodingOptions.greedy(language="en"))
    verifier.submit("a", AudioChunk(0, RECORDING, is_last=True))
    while verifier.has_work:
        verifier.step()
    assert verifier.wake_after_s == CANDIDATES_TIMEOUT_NS / 1e9
    now_ns += CANDIDATES_TIMEOUT_NS
    assert verifier.has_work
    commits = [event for _, event in verifier.step() if isinstance(event, Commit)]
    assert [(len(commit.tokens), commit.num_self_decoded) for commit in commits] == [(1, 1)]
    assert commits[0].timing.queue_ns == 0
    assert verifier._response_time.expected_ms(1) < 1
    assert not verifier.has_work
