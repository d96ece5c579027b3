"""Lags, ladders and predicted gains; and a real target with two clients."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from experiments.capacity.clients import ClientProcess, InOneProcess, OverNetwork
from experiments.capacity.expectation import amdahl, pass_s, predicted_gain, sizes_around
from experiments.capacity.gains import bars, gain_of, sizes_needed, split_arms
from experiments.capacity.ladder import Ladder, memory_of_a_session
from experiments.capacity.load import Arm, Clients, Load, Outcome, tally, together
from experiments.capacity.log import Expected, SessionLog
from experiments.capacity.models import DEMO, Measured
from experiments.capacity.neighbours import Neighbours, Waits
from experiments.capacity.usage import ENCODE, FORWARD, PASSES, Meter, Usage
from experiments.common.audio.samples import load_samples
from experiments.common.replay.record import recorded
from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.types import Commit, Timing, Window, WindowOpened
from tests.e2e.processes import Server

LOAD = Load(Clients.STREAMS, Arm.FULL, 2, gamma=3, seed=0, stagger_s=5, period_s=10)
TWO_WINDOWS = (Expected(0, (5, 6, 9)), Expected(2_800, (7, 9)))


def session_log(start_s: float | None = 100.0, seconds: float = 40) -> SessionLog:
    return SessionLog("a", int(16_000 * seconds), TWO_WINDOWS, start_s)


def opened(id_: int, start_frame: int) -> WindowOpened:
    return WindowOpened(Window(id_, start_frame, 3_000, prompt=(1, 2, 3), max_new_tokens=50))


def commit(id_: int, base: int, *tokens: int, verified: int = 0, final: bool = False, **more) -> Commit:
    kept = len(tokens) - 1 if verified else 0
    timing = Timing(queue_ns=2_000_000)
    return Commit(
        id_, base, tokens, num_verified=verified, num_accepted=kept, is_final=final, timing=timing, **more
    )


def played(log: SessionLog) -> SessionLog:
    """Add the events of both windows: 0.6 s and 1.5 s after their audio was complete."""
    for at_s, event in (
        (130.2, opened(1, 0)),
        (130.4, commit(1, 0, 5, 6, verified=3)),
        (130.5, commit(1, 2)),  # a block that came too late
        (130.85, commit(1, 2, 9, final=True)),
        (140.0, opened(2, 2_800)),
        (141.5, commit(2, 0, 7, 9, verified=2, final=True)),
    ):
        log.add(at_s, event)
    return log


def test_a_window_is_due_when_its_audio_is_complete():
    log = session_log()
    # 30 s and 40 samples of context, in pieces of 0.25 s; the second one has the end of the recording.
    assert [log.due_s(0), log.due_s(1)] == [130.25, 140.0]
    assert session_log(start_s=None).due_s(0) == float("inf")


def test_lags_end_at_the_last_token_or_now_for_an_open_window():
    log = played(session_log())
    assert log.lags_s(100, 200, 200) == pytest.approx([0.6, 1.5])
    assert log.lags_s(131, 200, 200) == pytest.approx([1.5])  # the first was due before
    assert log.differences == []
    log.finish()
    assert log.differences == []
    silent = session_log()
    assert silent.lags_s(100, 135, 150) == pytest.approx([19.75])
    assert silent.is_overdue(131) and not silent.is_overdue(130)
    assert not log.is_overdue(200)
    assert session_log(start_s=None).lags_s(0, 1e9, 1e9) == []


def test_a_text_that_differs_is_named():
    log = session_log()
    log.add(1, opened(1, 0))
    log.add(2, commit(1, 0, 5, 7, 9, final=True))
    assert log.differences == ["a, window 0 at frame 0: differs from target-only"]
    log.finish()
    assert log.differences[1:] == ["a: 1 windows instead of 2"]


def test_a_tally_counts_its_period_only():
    outcome = tally(LOAD, [played(session_log()), played(session_log())], 130.45, 142, 142)
    assert (outcome.num_tokens, outcome.num_passes, outcome.num_verifying) == (6, 4, 2)
    assert (outcome.num_verified, outcome.num_accepted, outcome.held) == (4, 2, 2 * (5 + 3))
    assert outcome.tokens_per_s == 0.6
    assert outcome.tokens_per_pass == 1.5
    assert (outcome.yield_of_blocks, outcome.width, outcome.mean_held) == (2.0, 2.0, 4.0)
    assert outcome.queue_s == pytest.approx(0.008)
    assert outcome.lags_s == pytest.approx((1.5, 1.5))  # the others were due before the period


def test_reused_candidates_are_not_counted_as_the_drafts():
    log = session_log()
    log.add(1, opened(1, 0))
    log.add(2, commit(1, 0, 5, 6, verified=1, num_hinted=1))
    assert tally(LOAD, [log], 0, 3, 3).num_verifying == 0


def test_parts_of_a_load_are_summed():
    one = Outcome(LOAD, num_tokens=5, lags_s=(1.0,), usage=Usage(num_forwards=2, cpu_s=1.0), resident_mb=10)
    both = together([one, replace(one, failures=("full",), lags_s=(3.0,))])
    assert (both.num_tokens, both.lags_s, both.failures) == (10, (1.0, 3.0), ("full",))
    assert (both.usage, both.resident_mb, both.load) == (Usage(num_forwards=4, cpu_s=2.0), 20, LOAD)


def test_a_quantile_of_few_lags_is_a_measured_one():
    outcome = Outcome(LOAD, lags_s=(0.1, 0.2, 4.0))
    assert [outcome.lag_s(q) for q in (0.5, 0.95, 1.0)] == [0.2, 4.0, 4.0]
    assert Outcome(LOAD).lag_s(0.95) == 0


def level(num_sessions: int, *lags_s: float, failures: tuple[str, ...] = ()) -> Outcome:
    return Outcome(replace(LOAD, num_sessions=num_sessions), lags_s=lags_s, failures=failures)


def test_a_ladder_ends_at_hopeless_lags():
    ladder = Ladder(Arm.FULL, max_lag_s=1.0)
    for outcome in (level(1, 0.3), level(2, 1.0), level(4, 1.2)):
        ladder.climb(outcome)
        assert not ladder.stopped
    assert ladder.most_held == 2
    ladder.climb(level(8, 0.9))
    assert ladder.most_held == 2  # four were not held
    ladder.climb(level(16, 5.1))
    assert ladder.stopped == "5.1 s late at 16"


def test_levels_with_failures_or_without_answers_do_not_hold():
    ladder = Ladder(Arm.FULL, max_lag_s=1.0)
    assert not ladder.holds(level(1))
    ladder.climb(level(1, 0.3, failures=("client 0: full",)))
    assert (ladder.most_held, ladder.stopped) == (0, "sessions failed at 1: client 0: full")


def test_memory_of_a_session_is_the_slope_over_all_levels():
    levels = [replace(level(n), resident_mb=mb) for n, mb in ((1, 110.0), (2, 125.0), (4, 145.0), (2, 115.0))]
    assert memory_of_a_session(levels) == pytest.approx(56.25 / 4.75)
    assert memory_of_a_session(levels[:1]) is None


TIMES = {(2, 1): 4.0, (3, 1): 5.0, (2, 4): 6.0, (3, 4): 7.0, (2, 5): 8.0, (3, 5): 9.0}


def test_times_between_measured_sizes_are_interpolated():
    assert sizes_around(2.5, 4.5) == [(2, 4), (2, 5), (3, 4), (3, 5)]
    assert sizes_around(0.4, 1) == [(1, 1)]
    assert pass_s(TIMES, 2, 4) == 6.0
    assert pass_s(TIMES, 2.5, 4.5) == 7.5
    assert pass_s(TIMES, 2.25, 1) == 4.25


def test_gains_follow_from_yield_forward_times_and_fixed_share():
    assert predicted_gain(TIMES, (2, 2), num_yielded=3, width=3) == 3 * 4 / 6
    assert predicted_gain(TIMES, (3, 2), num_yielded=3, width=3) == pytest.approx(3 * (5 / 3) / (6 / 2))
    assert amdahl(2.0, 0.0) == 2.0
    assert amdahl(2.0, 0.5) == pytest.approx(4 / 3)
    assert amdahl(1e12, 0.25) == pytest.approx(4)


def files(arm: Arm, num_tokens: int, **more) -> Outcome:
    return Outcome(replace(LOAD, clients=Clients.FILES, arm=arm), num_tokens=num_tokens, **more)


def test_a_gain_compares_rounds_and_has_bars():
    usage = Usage(num_forwards=50, num_rows=100, forward_s=5, encode_s=2, cpu_s=8)
    rounds = {
        (Arm.TARGET_ONLY, 2): [files(Arm.TARGET_ONLY, 100, usage=usage)] * 2,
        (Arm.FULL, 2): [files(Arm.FULL, 150, num_verifying=10, num_verified=30, num_accepted=20, usage=usage)]
        * 2,
        (Arm.PER_CLIENT, 2): [files(Arm.PER_CLIENT, 80, usage=usage)] * 2,
    }
    assert split_arms(rounds, 2) == [Arm.FULL]
    assert sizes_needed(rounds, 2) == [(2, 1), (2, 4)]
    gain = gain_of(rounds, Arm.FULL, 2, TIMES, seed=0)
    assert (gain.num_yielded, gain.width, gain.encode_share) == (3, 3, 0.25)
    assert (gain.predicted, gain.decoding.value, gain.whole.value) == pytest.approx((2.0, 1.5, 1.5))
    assert gain.allowed == pytest.approx(1 / (0.75 / 1.5 + 0.25))
    assert [bar.holds for bar in bars([gain])] == [False, True]
    assert all("limited" in bar.shown for bar in bars([replace(gain, generator_share=0.9)]))


def test_counters_are_shared_by_mapping_the_file(tmp_path):
    meter, reader = Meter.at(tmp_path / "meter"), Meter.at(tmp_path / "meter")
    meter.own()
    before = reader.read()
    with meter.counting(FORWARD):
        torch.ones(200, 200) @ torch.ones(200, 200)
    meter.count(PASSES)
    meter.count(ENCODE, 2_000_000_000)
    spent = reader.read() - before
    assert (spent.num_forwards, spent.encode_s) == (1, 2.0)
    assert spent.forward_s > 0
    assert reader.read().cpu_s > 0
    assert Usage(num_forwards=2, num_rows=5).batch_size == 2.5
    assert Usage().batch_size == Usage().encode_share == 0


def test_unknown_shapes_and_demo_dtypes_are_refused(tmp_path):
    with pytest.raises(InvalidRequest, match="Unknown shape 'huge'"):
        Measured("huge", "float32", tmp_path)
    with pytest.raises(InvalidRequest, match="runs in float32 only"):
        Measured(DEMO, "int8", tmp_path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Measured:
    trace = tmp_path_factory.mktemp("capacity") / "trace.json"
    options = [DecodingOptions.greedy(language="en")]
    recorded(trace, load_samples(None)[:1], target="demo-target", draft="demo-draft-tiny", options=options)
    return Measured(DEMO, "float32", trace)


def play(clients: ClientProcess, arm: Arm, numbers: range) -> Outcome:
    load = Load(Clients.FILES, arm, len(numbers), 3, 4, seed=0, stagger_s=0.3, period_s=3.0)
    try:
        outcome = clients.run(load, numbers, time.monotonic())
    finally:
        clients.close()
    assert (outcome.failures, outcome.differences) == ((), ())
    assert outcome.num_tokens >= outcome.num_passes > 0  # few on a busy machine
    assert outcome.usage.num_forwards > 0
    assert outcome.usage.forward_s > 0
    assert outcome.usage.cpu_s > 0
    assert outcome.resident_mb > 50
    return outcome


@pytest.mark.nightly
def test_two_clients_on_a_real_target(measured, tmp_path):
    meter = tmp_path / "meter"
    arguments = ("--shape", DEMO, "--trace", str(measured.trace), "--meter", str(meter))
    options = ("--port", "0", "--log-format", "json", "--threads", "1", "--max-sessions", "2")
    server = Server("experiments.capacity.serve_target", *arguments, *options)
    try:
        clients = ClientProcess(OverNetwork(server.address, 2), measured, load_samples(None)[:1], meter)
        outcome = play(clients, Arm.FULL, range(2))
    finally:
        server.end()
    assert 1 <= outcome.usage.batch_size <= 2
    assert outcome.generator_s > 0


@pytest.mark.nightly
def test_a_client_with_both_models_in_its_process(measured):
    clients = ClientProcess(InOneProcess(), measured, load_samples(None)[:1])
    outcome = play(clients, Arm.PER_CLIENT, range(1))
    assert outcome.usage.batch_size == 1
    assert outcome.generator_s == 0  # it is part of the target's process


def test_neighbours_waits_are_compared_by_round():
    beside, without = Waits(), Waits()
    for _ in range(3):
        without.add([[0.010] * 20, [0.010] * 20])
        beside.add([[0.010] * 38 + [0.090], [0.010] * 20])
    neighbours = Neighbours(beside, without, (), seed=0)
    assert neighbours.bar.holds and neighbours.bar.value == pytest.approx(1)
    assert beside.longest_ms == pytest.approx([90] * 3) and without.longest_ms == pytest.approx([10] * 3)
    assert "longest of a window 90 (90-90) ms" in str(neighbours)
    stalled = Waits()
    for _ in range(3):
        stalled.add([[0.010] * 9 + [0.090]])
    assert not Neighbours(stalled, without, (), seed=0).bar.holds
