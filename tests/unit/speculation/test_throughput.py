"""A session without candidates takes part if it brings at least the average tokens per time."""

from __future__ import annotations

import pytest

from specwhisper.speculation.forward_time import BatchTime
from specwhisper.speculation.throughput import Throughput

MS = 1e6
CPU, GPU = (5 * MS, 2.2 * MS, 0.18 * MS), (8 * MS, 0.055 * MS, 0.005 * MS)  # constant, session, token


def throughput(costs, *, num_sessions=8, width=10, idle_ns=0.0):
    """Return the throughput after forward passes of sessions with candidates, of which half are right."""
    constant, session, token = costs
    time = BatchTime()
    found, now_ns = Throughput(time), 0.0
    for number in range(100):
        sessions, tokens = num_sessions - number % 3, (num_sessions - number % 3) * (width - number % 2)
        forward_ns = constant + session * sessions + token * tokens
        now_ns += forward_ns + idle_ns
        time.observe(sessions, tokens, forward_ns)
        found.observe(tokens // 2, forward_ns, now_ns)
    return found


def test_a_single_token_is_worth_its_part_on_a_gpu_only():
    assert throughput(GPU).is_worth(1.0, 1)
    assert not throughput(CPU).is_worth(1.0, 1)


def test_a_block_is_worth_its_part_anywhere():
    assert throughput(GPU).is_worth(5.0, 9)
    assert throughput(CPU).is_worth(5.0, 9)


def test_an_idle_target_takes_everything():
    assert throughput(CPU, idle_ns=200 * MS).is_worth(1.0, 1)


def test_hours_of_silence_count_as_a_few_forward_passes():
    found = throughput(CPU)
    found.observe(8, 20 * MS, 1e15)
    assert not found.is_worth(1.0, 1)


@pytest.mark.parametrize("expected", [0.0, 1.0])
def test_everything_is_worth_its_part_before_the_first_forward_pass(expected):
    assert Throughput(BatchTime()).is_worth(expected, 1)
