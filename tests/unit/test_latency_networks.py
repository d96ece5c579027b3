"""Slow networks: what they do to packets, and that a proxy really delays."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.latency.cells import CHOSEN, Cell, cells_of, parse_gammas, parse_modes, parse_times, schedule
from experiments.latency.networks.backends import ProxyNetwork, netem_arguments, open_network
from experiments.latency.networks.conditions import Conditions, Way
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.types import Mode

times = st.lists(st.floats(0, 10), min_size=1, max_size=50).map(lambda gaps: list(itertools.accumulate(gaps)))


@given(times, st.floats(0, 1), st.floats(0, 0.1), st.integers(0, 5))
def test_packets_keep_their_order_and_are_never_early(entered, round_trip_s, jitter_s, seed):
    way = Way(Conditions(round_trip_s, jitter_s), seed)
    left = [way.leaves_s(now_s, 100) for now_s in entered]
    assert left == sorted(left)
    assert all(out >= now + round_trip_s / 2 for out, now in zip(left, entered, strict=True))
    if not jitter_s:
        assert left == [now + round_trip_s / 2 for now in entered]


def test_some_are_lost_and_some_overtake():
    lossy, reordering = Way(Conditions(0.1, loss=0.3), 1), Way(Conditions(0.1, reordering=0.3), 1)
    lost = sum(lossy.leaves_s(float(number), 100) is None for number in range(2000))
    assert 500 < lost < 700
    early = sum(reordering.leaves_s(float(number), 100) == number for number in range(2000))
    assert 500 < early < 700


def test_a_narrow_line_takes_its_time():
    way = Way(Conditions(0.1, bytes_per_s=1000), 0)
    assert [way.leaves_s(0.0, 500) for _ in range(3)] == pytest.approx([0.55, 1.05, 1.55])
    assert way.leaves_s(10.0, 500) == pytest.approx(10.55)


@given(times)
def test_nothing_leaves_during_a_stall(entered):
    way = Way(Conditions(0.0, stall_every_s=5, stall_s=1), 0)
    assert all(way.leaves_s(now_s, 1) % 5 >= 1 - 1e-9 for now_s in entered)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"round_trip_s": -1}, "cannot be negative"),
        ({"loss": 1.0}, "a share below 1"),
        ({"stall_s": 2, "stall_every_s": 1}, "let nothing through"),
    ],
)
def test_impossible_conditions_are_refused(facts, message):
    with pytest.raises(InvalidRequest, match=message):
        Conditions(**facts)


def test_conditions_say_what_they_are():
    conditions = Conditions(0.02, 0.001, 0.01, 0.02, 125_000, 5, 0.5)
    said = "20 ms, jitter 1 ms, loss 1.0%, reordering 2.0%, 1 Mbit/s, stalls of 0.5 s every 5 s"
    assert str(conditions) == said
    assert Conditions(**conditions.facts()) == conditions


def test_netem_is_told_the_same():
    told = netem_arguments(Conditions(0.02, 0.001, 0.01, 0.25, 125_000), 0)
    assert told[3:] == "delay 10000us 1000us distribution normal loss 1% reorder 25% rate 1000000bit".split()
    with pytest.raises(UnsupportedOption, match="does not stall"):
        netem_arguments(Conditions(stall_s=1, stall_every_s=2), 0)


async def test_a_proxy_delays_both_ways_and_changes_on_open_connections():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with ExitStack() as stack:
            network = ProxyNetwork(stack)
            host, _, way = network.way_to(f"127.0.0.1:{port}").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(way))
            for round_trip_s in (0.05, 0.0, 0.1):
                await asyncio.to_thread(network.apply, Conditions(round_trip_s))
                started_s = time.monotonic()
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                assert time.monotonic() - started_s >= round_trip_s
            writer.write_eof()
            assert await reader.read() == b""  # the end crosses as well
            writer.close()
            with pytest.raises(UnsupportedOption, match="never lost or reordered"):
                network.apply(Conditions(loss=0.1))


def test_an_unknown_network_is_refused():
    with pytest.raises(InvalidRequest, match="choose one of proxy, tun, netem"), open_network("moon"):
        pass


def test_every_cell_is_taken_once_in_every_repeat_and_round_trips_stay_together():
    cells = cells_of([Mode.TARGET_ONLY, Mode.SYNC, Mode.ONE_PROCESS], [1, CHOSEN], 3, max_cores=2)
    assert len(cells) == 3 + 2 * 3 + 2 * 2 * 3
    taken = list(schedule(cells, 4, seed=0))
    for repeat in range(4):
        here = [cell for number, cell in taken if number == repeat]
        assert sorted(here) == sorted(cells)
        assert len(list(itertools.groupby(here, lambda cell: cell.round_trip))) == 3
    assert list(schedule(cells, 4, seed=0)) == taken != list(schedule(cells, 4, seed=1))
    assert str(Cell(Mode.SYNC, CHOSEN, 0)) == "sync, gamma chosen"


def test_lists_are_read():
    assert parse_modes("full, sync") == [Mode.FULL, Mode.SYNC]
    assert parse_gammas("1,16,chosen") == [1, 16, CHOSEN]
    assert parse_times("0,0.5", "--rtt") == [0, 0.5]
    for parse, words in (
        (parse_modes, "fast"),
        (parse_gammas, "65"),
        (parse_gammas, "0"),
        (parse_gammas, "x"),
    ):
        with pytest.raises(InvalidRequest):
            parse(words)
    for words in ("-1", "x"):
        with pytest.raises(InvalidRequest, match="--rtt"):
            parse_times(words, "--rtt")
