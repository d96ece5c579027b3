"""How much audio may be on its way over a connection.

Without a limit, a sender fills every buffer on the path. What is sent next waits for all of it: candidates
too, and the answers to gRPC's pings, whose lateness ends the connection. As in FAST TCP and BBR, the limit is
the link's own rate times its round trip and a little more, measured by when earlier audio was taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from math import inf
from time import monotonic_ns

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.types import NS_PER_S, SAMPLE_RATE

PIECE_BYTES = 16 * 1024  # half a second of audio: candidates wait for one piece at most
SLOW_PIECE_BYTES = 4 * 1024
START_BYTES, LEAST_BYTES = 32 * 1024, 2 * SLOW_PIECE_BYTES
MOST_UNMARKED_BYTES = 128 * 1024  # so that a link is measured in time that has become slow
QUEUE_S, MOST_QUEUE_S = 0.3, 1.0  # beyond the round trip; as long as that within these limits
NO_QUEUE, GROWTH = 1.25, 4.0  # answers within the first number of round trips allow growth by the second
FULL = 0.75  # share of the window above which the link, and not the audio, decides the rate
CHECK_NS = 10 * NS_PER_S  # after it, what was measured may no longer hold
FIRST_ANSWER_S = 5.0  # a peer may answer only once it has all audio
FAST_BYTES_PER_S = 1_600_000
SLOW_BYTES_PER_S = 2 * BYTES_PER_SAMPLE * SAMPLE_RATE  # twice that of audio in real time


class SendWindow:
    """The audio that may be in flight over one connection, of all its streams.

    Times are arguments. The sender sends pings with the audio, which the peer answers at once. A connection
    delivers in order: an answered ping shows that all audio before it was taken, of whichever stream.
    """

    def __init__(self) -> None:
        self._num_sent = self._num_marked = self._num_taken = 0
        self._window = float(START_BYTES)
        self._round_trip_s = inf  # the shortest
        self._checked_ns = self._used_ns = 0
        self._is_emptying = False
        self._pings: dict[int, tuple[int, int]] = {}  # bytes sent before each, and those in flight then
        self._rates: deque[float] = deque(maxlen=8)  # while the window was full; the best shows the link

    @property
    def num_in_flight(self) -> int:
        """Bytes that were not taken yet, as far as known."""
        return self._num_sent - self._num_taken

    @property
    def has_room(self) -> bool:
        return self.num_in_flight < (1 if self._is_emptying else self._window)

    @property
    def bytes_per_s(self) -> float:
        """The link's rate; infinite as long as it was not the limit."""
        return max(self._rates, default=inf)

    @property
    def is_slow(self) -> bool:
        """Whether audio takes the link much of its time, and goes as FLAC."""
        return self.bytes_per_s < SLOW_BYTES_PER_S

    @property
    def needs_ping(self) -> bool:
        """Whether the audio that was sent last is to be followed by a ping."""
        return self._num_sent - self._num_marked >= min(self._window / 8, MOST_UNMARKED_BYTES)

    def sent(self, num_bytes: int) -> None:
        self._num_sent += num_bytes

    def ping(self, now_ns: int) -> int:
        if now_ns > min(self._pings, default=self._used_ns) + CHECK_NS:  # idle, or the connection was lost
            self._num_taken = self._num_sent
            self._pings.clear()
            self._window = min(self._window, START_BYTES)
        if self.num_in_flight:
            self._used_ns = now_ns
        ping = max(now_ns, max(self._pings, default=0) + 1)
        self._num_marked = self._num_sent
        self._pings[ping] = self._num_sent, self.num_in_flight
        return ping

    def taken(self, ping: int, now_ns: int) -> None:
        """Measure the link by the answer to a ping."""
        if ping not in self._pings:
            return  # its stream has waited for something else: a later ping of another one was faster
        self._num_taken, num_in_flight = self._pings[ping]
        self._pings = {later: counts for later, counts in self._pings.items() if later > ping}
        took_s = max(now_ns - ping, 1_000) / NS_PER_S
        before_s, self._round_trip_s = self._round_trip_s, min(self._round_trip_s, took_s)
        if num_in_flight >= FULL * self._window:
            self._rates.append(num_in_flight / took_s)
        most_s = self._round_trip_s + min(max(self._round_trip_s, QUEUE_S), MOST_QUEUE_S)
        fitting = num_in_flight * most_s / took_s
        if before_s == inf:
            pass  # how much of the time was the queue's is not known
        elif took_s <= min(NO_QUEUE * before_s, MOST_QUEUE_S):
            self._window = max(self._window, GROWTH * num_in_flight)
        elif took_s <= most_s:
            self._window = max(self._window, min(fitting, 2.0 * num_in_flight))
        else:
            self._window = max(fitting, LEAST_BYTES)
            self._is_emptying |= now_ns >= self._checked_ns + CHECK_NS
        if self._is_emptying and not self.num_in_flight:
            self._round_trip_s, self._checked_ns, self._is_emptying = inf, now_ns, False


class PacedStream:
    """One stream's part in the window of its connection."""

    def __init__(self, window: SendWindow) -> None:
        self.window = window
        self._last_ping = self._last_answered = 0
        self._is_limited = True
        self._has_news = asyncio.Event()

    @property
    def is_slow(self) -> bool:
        """Whether the link is slow, and the peer has answered a ping."""
        return self._last_answered > 0 and self.window.is_slow

    def piece_bytes(self, most: int) -> int:
        """Return the size of the next message of audio: ``most`` on a fast link."""
        if self.is_slow:
            return SLOW_PIECE_BYTES
        return most if FAST_BYTES_PER_S <= self.window.bytes_per_s < inf else PIECE_BYTES

    def ping(self) -> int:
        self._last_ping = self.window.ping(monotonic_ns())
        return self._last_ping

    def taken(self, ping: int) -> None:
        """Take the answer to a ping."""
        self.window.taken(ping, monotonic_ns())
        self._last_answered = ping
        self._has_news.set()

    def on_other_response(self) -> None:
        """Send without a limit if no ping was answered yet: the peer knows none."""
        if not self._last_answered:
            self._is_limited = False
            self._has_news.set()

    async def pings_until_room(self) -> AsyncIterator[int]:
        """Wait until audio may be sent; yield pings to send meanwhile.

        One is always under way: the pings of other streams, which may have ended, could all stay unanswered.
        """
        while self._is_limited and not self.window.has_room:
            self._has_news.clear()
            if self._last_answered == self._last_ping:
                yield self.ping()
            try:
                async with asyncio.timeout(None if self._last_answered else FIRST_ANSWER_S):
                    await self._has_news.wait()
            except TimeoutError:
                self._is_limited = False
