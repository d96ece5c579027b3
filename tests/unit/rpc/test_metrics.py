"""Metrics count forward passes and sessions."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from specwhisper.errors import InvalidAudio, PairMismatch, ServerFull, TargetUnavailable
from specwhisper.observe.metrics import EngineMetrics, Registry, ServerMetrics, Tally, TokenCounters
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Candidates, Commit, Timing
from specwhisper.wire.status import outcome_of


def commit(batch_size: int, forward_ms: int = 20, **changes) -> Commit:
    values = {"tokens": (1, 2, 3), "num_verified": 4, "num_accepted": 2} | changes
    timing = Timing(queue_ns=3_000_000, forward_ns=forward_ms * 1_000_000, batch_size=batch_size)
    return Commit(window_id=1, base=0, answered_block=1, held=3, credit=9, timing=timing, **values)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_the_sessions_of_a_step_share_its_forward_pass():
    registry = Registry("test")
    metrics = EngineMetrics(registry)
    metrics.observe([("a", commit(3)), ("b", commit(3)), ("c", commit(3, tokens=()))])
    metrics.observe([("a", commit(1, 40))])
    assert value(registry.collected, "test_forward_pass_seconds_count") == 2
    assert value(registry.collected, "test_forward_pass_seconds_sum") == pytest.approx(0.06)
    assert value(registry.collected, "test_forward_pass_sessions_sum") == 4
    assert value(registry.collected, "test_queue_seconds_count") == 3
    assert value(registry.collected, "test_committed_tokens_total") == 9
    metrics.observe([("a", commit(1)), ("b", commit(1))])  # repeated for each session
    assert value(registry.collected, "test_forward_pass_seconds_count") == 4


def test_sessions_are_summed():
    registry = Registry("test")
    counters = TokenCounters(registry, drafts=True)
    sessions = [(SpeculationStatistics(), Tally(counters)) for _ in range(2)]
    for statistics, tally in sessions:
        for _ in range(3):
            statistics.observe(Candidates(1, 0, 0, (1, 2)))
            statistics.observe(commit(1))
            statistics.draft_ns += 500_000_000
            tally.count(statistics)
            tally.count(statistics)
    assert value(registry.collected, "test_drafted_tokens_total") == 12
    assert value(registry.collected, "test_accepted_tokens_total") == 12
    assert value(registry.collected, "test_draft_seconds_total") == pytest.approx(3.0)
    assert value(registry.collected, "test_forward_pass_accepted_tokens_count") == 6
    assert value(registry.collected, "test_forward_pass_accepted_tokens_bucket", le="1.0") == 0
    assert value(registry.collected, "test_forward_pass_accepted_tokens_bucket", le="2.0") == 6


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (GeneratorExit(), "cancelled"),
        (InvalidAudio("It is empty."), "refused"),
        (ServerFull("It is full."), "refused"),
        (TargetUnavailable("It is gone."), "failed"),
        (PairMismatch("They do not fit."), "failed"),
        (ValueError("a defect"), "failed"),
    ],
)
def test_an_error_has_one_of_three_outcomes(error, outcome):
    assert outcome_of(error) == outcome


async def test_a_cancellation_not_by_the_caller_is_a_failure():
    assert outcome_of(asyncio.CancelledError()) == "failed"
    outcomes = []

    async def session() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            outcomes.append(outcome_of(error))
            raise

    task = asyncio.create_task(session())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert outcomes == ["cancelled"]


def test_two_servers_in_a_process_count_separately():
    first, second = (ServerMetrics("test", model="m", dtype="float32", device="cpu") for _ in range(2))
    first.count_error(ServerFull("It is full."))
    first.count_error(KeyError("a defect"))
    assert value(first.collected, "test_errors_total", kind="ServerFull") == 1
    assert value(first.collected, "test_errors_total", kind="Internal") == 1
    assert value(second.collected, "test_errors_total", kind="ServerFull") is None
