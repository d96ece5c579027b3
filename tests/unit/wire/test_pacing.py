"""How much audio is on its way over links of all rates and round trips, simulated."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.types import NS_PER_S
from specwhisper.wire import pacing
from specwhisper.wire.pacing import LEAST_BYTES, SLOW_PIECE_BYTES, START_BYTES, PacedStream, SendWindow
from tests.nightly import at_night

PIECE_BYTES = 16 * 1024
LONG_S = 30.0

OverTime = Callable[[float], float]


@dataclass(frozen=True)
class Sent:
    """A transfer: when its last byte arrived, and how long each piece waited for those before it."""

    took_s: float
    waits_s: list[tuple[float, float]]  # by the moment of sending
    arrivals_s: list[tuple[float, int]]  # with the bytes of each piece
    window: SendWindow

    def bytes_per_s(self, after_s: float) -> float:
        """Return the rate from a moment on, until most has been sent."""
        until_s = self.waits_s[-1][0]
        num_bytes = sum(size for moment_s, size in self.arrivals_s if after_s <= moment_s <= until_s)
        return num_bytes / (until_s - after_s) if until_s > after_s + 5.0 else inf

    def longest_wait_s(self, after_s: float) -> float:
        return max((wait_s for moment_s, wait_s in self.waits_s if moment_s >= after_s), default=0.0)


def send(num_bytes: float, bytes_per_s: OverTime, round_trip_s: OverTime) -> Sent:
    """Send at once what the window allows, over a link that delivers in order."""
    window, now_s, free_s, last_s, sent = SendWindow(), 0.0, 0.0, 0.0, 0
    waits_s: list[tuple[float, float]] = []
    arrivals_s: list[tuple[float, int]] = []
    answers: list[tuple[float, int]] = []

    def ping() -> None:
        nonlocal last_s
        last_s = max(last_s, max(free_s, now_s) + round_trip_s(now_s) + 1e-4)
        heappush(answers, (last_s, window.ping(ns())))

    def ns() -> int:
        return round(now_s * NS_PER_S) + 1

    ping()
    while True:
        while sent < num_bytes and window.has_room:
            piece = SLOW_PIECE_BYTES if window.is_slow else PIECE_BYTES
            window.sent(piece)
            sent += piece
            waits_s.append((now_s, max(0.0, free_s - now_s)))
            free_s = max(free_s, now_s) + piece / bytes_per_s(now_s)
            arrivals_s.append((free_s, piece))
            if window.needs_ping or not window.has_room:
                ping()
        if not answers:
            break
        now_s, answered = heappop(answers)
        window.taken(answered, ns())
    assert sent >= num_bytes, "it has stopped"
    return Sent(free_s + round_trip_s(now_s) / 2, waits_s, arrivals_s, window)


@pytest.mark.parametrize("round_trip_s", [0.0, 0.02, 0.1, 0.4])
@pytest.mark.parametrize("bytes_per_s", [20e3, 32e3, 64e3, 100e3, 1e6, 10e6, *at_night([100e6])])
def test_a_link_is_used_and_not_flooded(bytes_per_s, round_trip_s):
    own_s = max(818e3 / bytes_per_s, 6.0)
    sent = send(own_s * bytes_per_s, lambda _: bytes_per_s, lambda _: round_trip_s)
    assert sent.took_s <= 1.05 * own_s + 5 * round_trip_s  # as long as the first round trips take
    assert sent.longest_wait_s(0.0) <= max(START_BYTES / bytes_per_s, 1.5)
    assert sent.longest_wait_s(4.0) <= max(LEAST_BYTES / bytes_per_s, 0.8) + round_trip_s
    if own_s > 6.0 or bytes_per_s > 1e6:
        assert sent.window.is_slow == (bytes_per_s < 60e3)


@given(first=st.floats(4.3, 7.0), then=st.floats(4.3, 7.0), near=st.floats(0.0, 0.4), far=st.floats(0.0, 0.4))
@settings(max_examples=40, deadline=None)
def test_a_link_that_changes_is_measured_again(first, then, near, far):
    """Its rate and round trip are others after a third of the time."""
    change_s = LONG_S / 3

    def bytes_per_s(now_s: float) -> float:
        return 10.0 ** (first if now_s < change_s else then)

    num_bytes = change_s * (10.0**first + 4 * 10.0**then)
    sent = send(num_bytes, bytes_per_s, lambda now_s: near if now_s < change_s else far)
    drained_s = change_s + 10.0**first / 10.0**then  # what was on its way then
    assert sent.longest_wait_s(drained_s + 5.0) <= 2.5
    assert sent.bytes_per_s(drained_s + 5.0) >= 0.8 * 10.0**then


def test_little_audio_on_a_good_link_does_not_make_it_slow():
    window, now_ns = SendWindow(), 0
    for _ in range(100):  # live audio, with a round trip of 300 ms
        window.sent(3_200)
        now_ns += NS_PER_S // 10
        if window.needs_ping:
            window.taken(window.ping(now_ns), now_ns + 3 * NS_PER_S // 10)
    assert window.bytes_per_s == inf and window.has_room


def test_a_late_answer_of_a_stream_that_stood_still_changes_nothing():
    window = SendWindow()
    window.sent(PIECE_BYTES)
    late, quick = window.ping(1), window.ping(2)
    window.taken(quick, 1_000_000)
    before = vars(window).copy()
    window.taken(late, 60 * NS_PER_S)
    assert vars(window) == before and window.num_in_flight == 0


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_connection_that_was_idle_or_lost_is_measured_again(is_answered):
    window, last_s = SendWindow(), 100
    window.taken(window.ping(last_s * NS_PER_S), last_s * NS_PER_S + 1_000_000)
    for _ in range(8):
        window.sent(PIECE_BYTES)
        window.taken(window.ping(last_s * NS_PER_S), last_s * NS_PER_S + 1_000_000)
    window.sent(PIECE_BYTES)
    ping = window.ping(last_s * NS_PER_S)
    if is_answered:
        window.taken(ping, last_s * NS_PER_S + 1_000_000)
    window.ping((last_s + 11) * NS_PER_S)
    assert window.num_in_flight == 0
    window.sent(START_BYTES - 1)
    assert window.has_room
    window.sent(1)
    assert not window.has_room


async def test_a_stream_that_waits_has_a_mark_under_way():
    """The only marks in flight may be of streams that have ended."""
    window = SendWindow()
    window.sent(2 * START_BYTES)
    window.ping(1)  # of another stream
    paced, marks = PacedStream(window), []
    async for ping in paced.pings_until_room():
        marks.append(ping)
        asyncio.get_running_loop().call_soon(paced.taken, ping)
    assert len(marks) == 1 and window.has_room


async def test_a_peer_that_answers_no_mark_is_sent_all_audio(monkeypatch):
    monkeypatch.setattr(pacing, "FIRST_ANSWER_S", 0.05)
    window = SendWindow()
    silent, other = PacedStream(window), PacedStream(window)
    for paced in (silent, other):
        paced.ping()
    window.sent(2 * START_BYTES)
    other.on_other_response()
    for paced in (silent, other):
        assert not [ping async for ping in paced.pings_until_room()]
    assert not window.has_room and not other.is_slow
