"""Statistics are sums over a session's messages."""

from dataclasses import replace

from specwhisper.speculation.statistics import DraftReport, SpeculationStatistics
from specwhisper.types import Candidates, Commit, Timing, Window, WindowOpened


def commit(num_tokens: int, *, verified: int = 0, accepted: int = 0) -> Commit:
    return Commit(
        window_id=0,
        base=0,
        tokens=tuple(range(num_tokens)),
        num_verified=verified,
        num_accepted=accepted,
        num_self_decoded=int(not verified),
        timing=Timing(queue_ns=1, forward_ns=10, encode_ns=100, batch_size=2),
    )


def observed(*messages) -> SpeculationStatistics:
    statistics = SpeculationStatistics()
    for message in messages:
        statistics.observe(message)
    return statistics


def test_a_run_begins_with_a_window_and_after_each_correction():
    opened = WindowOpened(Window(0, 0, 3000, (1,), 10))
    reports = (
        DraftReport(num_judged=7, num_corrections=1),
        DraftReport(num_judged=3, num_corrections=1, num_realigned=1),
    )
    statistics = observed(opened, opened, *reports)
    assert (statistics.alpha, statistics.mean_run) == (0.8, 8 / 4)
    assert (statistics.num_corrections, statistics.num_realigned) == (2, 1)


def test_ratios_are_ratios_of_sums():
    statistics = observed(
        commit(5, verified=4, accepted=4),
        commit(1, verified=4, accepted=0),
        commit(1),
        commit(3, verified=2, accepted=2),
        commit(0),  # an empty one isn't a forward pass
        Candidates(0, 0, 0, (1, 2, 3)),
        Candidates(0, 3, 0, ()),
    )
    assert (statistics.num_blocks, statistics.num_drafted) == (2, 3)
    assert statistics.acceptance_rate == 6 / 10
    assert statistics.tokens_per_forward == 10 / 4
    assert (statistics.num_forwards, statistics.num_self_decoded) == (4, 1)
    assert statistics.acceptance_histogram == [1, 0, 1, 0, 1]
    assert (statistics.queue_ns, statistics.forward_ns, statistics.encode_ns) == (4, 40, 400)


def test_a_forward_pass_that_detects_the_language_counts():
    opened = WindowOpened(Window(0, 0, 3000, (1,), 10), language_probs={"en": 0.9})
    detected = replace(commit(2), timing=Timing(queue_ns=1, forward_ns=10, detect_ns=7))
    statistics = observed(opened, detected, commit(1))
    assert (statistics.num_forwards, statistics.forward_ns) == (3, 27)


def test_sessions_are_summed():
    one, other = observed(commit(5, verified=4, accepted=4)), observed(commit(2, verified=4, accepted=1))
    one.min_round_trip_ns, other.min_round_trip_ns = 0, 7
    one.add(other)
    both = observed(commit(5, verified=4, accepted=4), commit(2, verified=4, accepted=1))
    both.min_round_trip_ns = 7
    assert one == both
    fresh = SpeculationStatistics()
    fresh.add(SpeculationStatistics())
    assert fresh == SpeculationStatistics()


def test_current_values_are_the_newest_and_a_later_call_begins_without():
    statistics = observed(DraftReport(2, gamma=5), DraftReport(3), DraftReport(note="paused"))
    assert (statistics.num_draft_steps, statistics.gamma, statistics.draft_note) == (5, 5, "paused")
    statistics.observe(DraftReport(gamma=2))
    statistics.observe(replace(commit(1), timing=Timing(token_ns=7)))
    statistics.observe(replace(commit(1), timing=Timing(token_ns=0)))
    assert (statistics.token_ns, statistics.gamma, statistics.draft_note) == (7, 2, "paused")
    later = statistics.followed_by(SpeculationStatistics(num_draft_steps=4))
    assert (later.num_draft_steps, later.token_ns, later.gamma) == (9, 0, 0)
    statistics.add(SpeculationStatistics(token_ns=9))
    assert (statistics.token_ns, statistics.gamma) == (9, 2)


def test_a_forward_pass_may_verify_reused_and_drafted_candidates():
    statistics = observed(
        replace(commit(6, verified=7, accepted=5), num_hinted=4, num_hinted_first=4),
        replace(
            commit(2, verified=5, accepted=1), num_hinted=3, num_hinted_first=3
        ),  # what was drafted after was not judged
        replace(commit(3, verified=2, accepted=2), num_hinted=2, num_hinted_first=2),
    )
    assert (statistics.num_hinted, statistics.num_hinted_accepted) == (9, 7)
    assert (statistics.num_verified, statistics.num_accepted) == (3, 1)
    assert statistics.acceptance_histogram == [0, 1]
    assert statistics.num_forwards == 3


def test_it_prints_as_five_lines_without_rates_of_nothing():
    counts = SpeculationStatistics(
        num_drafted=20,
        num_verified=16,
        num_accepted=12,
        num_hinted=9,
        num_hinted_accepted=5,
        num_self_decoded=3,
        num_committed=30,
        num_forwards=8,
    )
    assert str(counts).splitlines() == [
        "tokens: 30 in 8 forward passes, 3.75 tokens per pass",
        "acceptance: 75.0% of 16 verified candidates",
        "hints: 5 of 9 tokens accepted",
        "self-decoded: 3 of 30 tokens",
        "wasted: 8 of 20 drafted tokens",
    ]
    assert repr(counts).startswith("SpeculationStatistics(num_drafted=20, ")
    assert str(SpeculationStatistics()).splitlines() == [
        "tokens: 0 in 0 forward passes, 0.00 tokens per pass",
        "acceptance: no verified candidates",
        "hints: none",
        "self-decoded: 0 of 0 tokens",
        "wasted: no drafted tokens",
    ]
    assert (SpeculationStatistics().alpha, SpeculationStatistics().mean_run) == (0.0, 0.0)
