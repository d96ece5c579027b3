"""Network conditions, and the delaying proxy."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import ExitStack
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.latency.networks.backends import ProxyNetwork, open_network
from experiments.latency.networks.conditions import MAX_QUEUE_S, Conditions, Direction
from specwhisper.errors import InvalidRequest, UnsupportedOption

times = st.lists(st.floats(0, 10), min_size=1, max_size=50).map(lambda gaps: list(itertools.accumulate(gaps)))


@given(times, st.floats(0, 1), st.floats(0, 0.1), st.integers(0, 5))
def test_packets_keep_their_order_and_are_never_early(entered, round_trip_s, jitter_s, seed):
    direction = Direction(Conditions(round_trip_s, jitter_s), seed)
    left = [direction.departure_s(now_s, 100) for now_s in entered]
    assert left == sorted(left)
    assert all(out >= now + round_trip_s / 2 for out, now in zip(left, entered, strict=True))
    if not jitter_s:
        assert left == [now + round_trip_s / 2 for now in entered]


def test_loss_and_reordering_affect_their_share_of_packets():
    lossy, reordering = Direction(Conditions(0.1, loss=0.3), 1), Direction(Conditions(0.1, reordering=0.3), 1)
    lost = sum(lossy.departure_s(float(number), 100) is None for number in range(2000))
    assert 500 < lost < 700
    early = sum(reordering.departure_s(float(number), 100) == number for number in range(2000))
    assert 500 < early < 700


def test_bandwidth_delays_packets():
    direction = Direction(Conditions(0.1, bytes_per_s=1000), 0)
    assert [direction.departure_s(0.0, 100) for _ in range(3)] == pytest.approx([0.15, 0.25, 0.35])
    assert direction.departure_s(10.0, 500) == pytest.approx(10.55)


def test_a_full_queue_drops_packets():
    direction = Direction(Conditions(bytes_per_s=1000), 0)
    left = [direction.departure_s(0.0, 100) for _ in range(5)]
    assert left == [pytest.approx(0.1), pytest.approx(0.2), pytest.approx(0.3), None, None]
    assert 0.2 < MAX_QUEUE_S < 0.3
    assert direction.departure_s(0.1, 100) == pytest.approx(0.4)  # it has room again
    waiting = Direction(Conditions(bytes_per_s=1000), 0, max_queue_s=inf)
    assert [waiting.departure_s(0.0, 100) for _ in range(50)][-1] == pytest.approx(5.0)


@given(times, st.sampled_from([0.0, 0.5]))
def test_nothing_leaves_during_a_stall(entered, reordering):
    direction = Direction(Conditions(0.1, reordering=reordering, stall_every_s=5, stall_s=1), 0)
    assert all(direction.departure_s(now_s, 1) % 5 >= 1 - 1e-9 for now_s in entered)


def test_overtaking_packets_wait_for_the_end_of_a_stall():
    direction = Direction(Conditions(0.1, reordering=0.3, stall_every_s=5, stall_s=1), 1)
    left = [direction.departure_s(5 * number + 0.5, 1) - 5 * number for number in range(2000)]
    assert left == pytest.approx([1.0] * len(left))
    left = [direction.departure_s(5 * number + 2, 1) - 5 * number for number in range(2000, 4000)]
    assert 500 < sum(out == pytest.approx(2.0) for out in left) < 700


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"round_trip_s": -1}, "round_trip_s is -1: pass a finite number from 0 on"),
        ({"loss": 1.0}, "a share below 1"),
        ({"jitter_s": float("nan")}, "jitter_s is nan"),
        ({"bytes_per_s": float("inf")}, "bytes_per_s is inf"),
        ({"stall_s": 2, "stall_every_s": 1}, "let nothing through"),
    ],
)
def test_impossible_conditions_are_refused(facts, message):
    with pytest.raises(InvalidRequest, match=message):
        Conditions(**facts)


def test_conditions_describe_themselves():
    conditions = Conditions(0.02, 0.001, 0.01, 0.02, 125_000, 5, 0.5)
    described = "20 ms, jitter 1 ms, loss 1.0%, reordering 2.0%, 1 Mbit/s, stalls of 0.5 s every 5 s"
    assert str(conditions) == described
    assert Conditions(**conditions.facts()) == conditions
    assert conditions.not_modelled == ["loss", "reordering", "bandwidth", "stalls"]
    assert not Conditions(0.02, 0.001, stall_every_s=5).not_modelled


async def test_a_proxy_delays_both_directions_and_changes_open_connections():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with ExitStack() as stack:
            network = ProxyNetwork(stack)
            host, _, proxy_port = network.route_to(f"127.0.0.1:{port}").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(proxy_port))
            for round_trip_s in (0.05, 0.0, 0.1):
                await asyncio.to_thread(network.apply, Conditions(round_trip_s))
                started_s = time.monotonic()
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                assert time.monotonic() - started_s >= round_trip_s
            writer.write_eof()
            assert await reader.read() == b""  # the end of the stream arrives too
            writer.close()
            with pytest.raises(UnsupportedOption, match="never lost or reordered"):
                network.apply(Conditions(loss=0.1))


def test_an_unknown_network_is_refused():
    with pytest.raises(InvalidRequest, match="choose one of proxy, tun"), open_network("moon"):
        pass


def test_a_link_that_becomes_faster_lets_no_packet_overtake():
    far = Direction(Conditions(0.3), 0)
    left = far.departure_s(0.0, 100)
    near = Direction(Conditions(0.02), 0, last_s=far.last_s)
    assert near.departure_s(0.01, 100) == left == pytest.approx(0.15)
    assert near.departure_s(1.0, 100) == pytest.approx(1.01)
