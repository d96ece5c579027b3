"""One session on a target over gRPC: requests, responses and heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic_ns
from typing import Any

import grpc.aio

from specwhisper.errors import GONE, ServerDraining, TargetUnavailable
from specwhisper.live import LivePosition
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import (
    NS_PER_S,
    AudioChunk,
    Candidates,
    Commit,
    ConfirmEvery,
    Limits,
    Resume,
    TimedHint,
    Timing,
    WindowOpened,
)
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, codec
from specwhisper.wire.pacing import PIECE_BYTES, PacedStream, SendWindow
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.link.sharing import Response, SharedSession
from specwhisper_draft_server.metrics import DraftMetrics

logger = logging.getLogger(__name__)

SHARED_PIECE_BYTES = 64 * 1024  # on a fast link, where candidates have another stream


class Outbox:
    """Requests that wait to be sent.

    All other requests overtake audio, so that candidates are never late.
    """

    def __init__(self) -> None:
        self._urgent: deque[pb.VerifyRequest] = deque()
        self._audio: deque[pb.VerifyRequest] = deque()
        self._is_filled = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_closed = False

    def put(self, request: pb.VerifyRequest, *, after_audio: bool = False) -> None:
        """Queue a message."""
        is_late = after_audio or request.WhichOneof("message") == "audio"
        (self._audio if is_late else self._urgent).append(request)
        self._is_filled.set()
        self._is_empty.clear()

    @property
    def has_urgent(self) -> bool:
        """Whether requests other than audio wait."""
        return bool(self._urgent)

    async def wait_sent(self) -> None:
        """Wait until all requests are sent."""
        if self._urgent or self._audio:
            await self._is_empty.wait()

    def close(self) -> None:
        """End the iteration, which gRPC does not stop when the call ends."""
        self._is_closed = True
        self._is_filled.set()

    def __aiter__(self) -> Outbox:
        return self

    async def __anext__(self) -> pb.VerifyRequest:
        while not (self._urgent or self._audio or self._is_closed):
            self._is_empty.set()
            self._is_filled.clear()
            await self._is_filled.wait()
        if self._is_closed:
            raise StopAsyncIteration
        return (self._urgent or self._audio).popleft()


class GrpcTargetStream:
    """One session on a target over gRPC; see :class:`TargetStream`.

    Parameters
    ----------
    address : of the target, as HOST:PORT.
    outbox : requests of the call.
    call, responses : the call, and an iterator over its responses.
    shared : the session's part of a stream that sessions share; ``None`` if it has its own only.
    target : the target's description.
    window : limits the audio on its way over the connection; heartbeats are its marks.
    note_gone : called when the target is lost or stops.

    Attributes
    ----------
    going_away : set once the target drains; it still serves the session for a while.
    on_answer : called with the timing of each commit.
    """

    def __init__(
        self,
        address: str,
        outbox: Outbox,
        call: Any,
        responses: AsyncIterator[pb.VerifyResponse],
        target: TargetDescription,
        limits: Limits,
        *,
        shared: SharedSession | None,
        window: SendWindow,
        note_gone: Callable[[], None],
        metrics: DraftMetrics,
    ) -> None:
        self.address = address
        self.target = target
        self._metrics = metrics
        self.limits = limits
        self.min_round_trip_ns = 0
        self._outbox = outbox
        self._call = call
        self._responses = responses if shared is None else shared.read(responses)
        self._shared = shared
        self._paced = PacedStream(window)
        self._vocabulary_size = len(target.vocabulary)
        self._note_gone = note_gone
        self._is_left = False
        self._has_switched = False  # candidates go to the shared stream
        self.going_away = asyncio.Event()
        self.on_answer: Callable[[Timing], None] = lambda _: None

    def resume(self, resume: Resume | LivePosition) -> None:
        """Continue an open window, or live audio; call it before any other method."""
        if isinstance(resume, LivePosition):
            self._outbox.put(pb.VerifyRequest(position=codec.live_position_to_proto(resume)))
        else:
            self._outbox.put(pb.VerifyRequest(resume=codec.resume_to_proto(resume)))

    def propose(self, block: Candidates) -> None:
        """Queue a block, cut to the target's limit; it overtakes audio."""
        most = self.limits.max_block_tokens
        if len(block.tokens) > most:
            block = replace(block, tokens=block.tokens[:most])
        if self._shared is not None and self._shared.has_received:
            # Once no earlier block waits, which would arrive after this one. Hints need no order.
            self._has_switched |= not self._outbox.has_urgent
            if self._has_switched:
                self._shared.propose(block)
                return
        request = pb.VerifyRequest()
        codec.candidates_to_proto(block, request.candidates)
        self._outbox.put(request)

    def hint(self, hint: TimedHint) -> None:
        """Queue a hint."""
        self._outbox.put(pb.VerifyRequest(hint=codec.hint_to_proto(hint)))

    def confirm_every(self, message: ConfirmEvery) -> None:
        """Queue an interval."""
        self._outbox.put(pb.VerifyRequest(confirm_every=codec.confirm_every_to_proto(message)))

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio once there is room for it, and wait until it is sent.

        This slows down the reader of a recording.
        """
        async for ping in self._paced.pings_until_room():
            self._outbox.put(_heartbeat(ping))
        audio = codec.audio_chunk_to_proto(chunk, compress=self._paced.is_slow)
        self._paced.window.sent(len(audio.data))
        self._outbox.put(pb.VerifyRequest(audio=audio))
        if self._paced.window.needs_ping:
            self._outbox.put(_heartbeat(self._paced.ping()), after_audio=True)
        await self._outbox.wait_sent()

    @property
    def piece_bytes(self) -> int:
        """The most audio in a message: candidates may wait for one."""
        return self._paced.piece_bytes(PIECE_BYTES if self._shared is None else SHARED_PIECE_BYTES)

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Yield the target's windows and commits, until the transcript is complete."""
        while (response := await self._next()) is not None:
            match response.WhichOneof("message"):
                case "window_opened":
                    yield codec.window_opened_from_proto(
                        response.window_opened, vocabulary_size=self._vocabulary_size
                    )
                case "commit":
                    commit = codec.commit_from_proto(response.commit, vocabulary_size=self._vocabulary_size)
                    self.on_answer(commit.timing)
                    yield commit
                case "heartbeat" if isinstance(response, pb.VerifyResponse):
                    self._measure(response.heartbeat)
                case "going_away" if isinstance(response, pb.VerifyResponse):
                    reason, grace_s = response.going_away.reason, response.going_away.grace_s
                    log = {"target": self.address, "reason": reason, "grace_s": grace_s}
                    logger.info("target is stopping", extra=log)
                    self.going_away.set()

    async def _next(self) -> Response | None:
        """Return the next response; ``None`` after the last."""
        try:
            return await self._next_in_time()
        except GONE:
            self._note_gone()
            raise

    async def _next_in_time(self) -> Response | None:
        try:
            with errors_translated(self.address):
                async with asyncio.timeout(SILENCE_S):
                    return await anext(self._responses, None)
        except TimeoutError:
            self._metrics.lost_heartbeats.inc()
            raise TargetUnavailable(
                f"Target {self.address} has sent nothing for {SILENCE_S:g} s, not even a heartbeat."
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_left or (task is not None and task.cancelling()):
                raise
            raise ServerDraining(f"Another target has taken the session of target {self.address}.") from None

    def leave(self) -> None:
        """End the call after another target has taken the session: :meth:`events` raises."""
        self._is_left = True
        self._call.cancel()

    def close(self) -> None:
        """End the call."""
        self._outbox.close()
        self._call.cancel()

    async def beat(self) -> None:
        """Send heartbeats, which measure the round trip, until cancelled."""
        while True:
            self._outbox.put(_heartbeat(self._paced.ping()))
            await asyncio.sleep(HEARTBEAT_S)

    def _measure(self, heartbeat: pb.Heartbeat) -> None:
        if heartbeat.echo_ns:
            self._paced.taken(heartbeat.echo_ns)
            round_trip_ns = monotonic_ns() - heartbeat.echo_ns
            self._metrics.round_trip_s.observe(round_trip_ns / NS_PER_S)
            self.min_round_trip_ns = min(self.min_round_trip_ns or round_trip_ns, round_trip_ns)


def _heartbeat(sent_ns: int) -> pb.VerifyRequest:
    return pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=sent_ns))


@contextmanager
def errors_translated(address: str) -> Iterator[None]:
    """Raise the project's error for a call to a target that failed."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, f"target {address}") from error
