"""One session on a target behind gRPC: what is sent, what comes, and signs of life."""

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
from specwhisper.observe.metrics.tokens import NS_PER_S
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import AudioChunk, Candidates, Commit, Limits, Resume, WindowOpened
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, codec
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.metrics import DraftMetrics

logger = logging.getLogger(__name__)

PIECE_BYTES = 16 * 1024  # half a second: small, so that candidates never wait behind audio for long


class Outbox:
    """What waits to be sent: candidates overtake audio, so that a block never queues behind a recording."""

    def __init__(self) -> None:
        self._urgent: deque[pb.VerifyRequest] = deque()
        self._audio: deque[pb.VerifyRequest] = deque()
        self._is_filled = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_closed = False

    def put(self, request: pb.VerifyRequest) -> None:
        """Queue a message."""
        (self._audio if request.WhichOneof("message") == "audio" else self._urgent).append(request)
        self._is_filled.set()
        self._is_empty.clear()

    async def wait_sent(self) -> None:
        """Wait until everything queued has gone out."""
        if self._urgent or self._audio:
            await self._is_empty.wait()

    def close(self) -> None:
        """End the iteration: when a call is over, grpc does not stop reading what it should send."""
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
    """One session on a target behind gRPC; see :class:`TargetStream`.

    Parameters
    ----------
    target : what the target is.
    note_gone : called when the target has ended the session, or is left.

    Attributes
    ----------
    going_away : set once the target has said that it stops; it still serves the session for a while.
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
        compress_audio: bool,
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
        self._responses = responses
        self._compress_audio = compress_audio
        self._vocabulary_size = len(target.vocabulary)
        self._note_gone = note_gone
        self._is_left = False
        self.going_away = asyncio.Event()

    def resume(self, resume: Resume) -> None:
        """Say where to go on; the first that is said, where it does not begin anew."""
        self._outbox.put(pb.VerifyRequest(resume=codec.resume_to_proto(resume)))

    def propose(self, block: Candidates) -> None:
        """Queue a block, cut to what this target takes; it overtakes audio."""
        most = self.limits.max_block_tokens
        if len(block.tokens) > most:
            block = replace(block, tokens=block.tokens[:most], proposals=block.proposals[:most])
        self._outbox.put(pb.VerifyRequest(candidates=codec.candidates_to_proto(block)))

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio and wait until it has gone out: the brake for whoever reads a recording."""
        audio = codec.audio_chunk_to_proto(chunk, compress=self._compress_audio)
        self._outbox.put(pb.VerifyRequest(audio=audio))
        await self._outbox.wait_sent()

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Give what the target says, until the transcript is whole."""
        while (response := await self._next()) is not None:
            match response.WhichOneof("message"):
                case "window_opened":
                    yield codec.window_opened_from_proto(
                        response.window_opened, vocabulary_size=self._vocabulary_size
                    )
                case "commit":
                    yield codec.commit_from_proto(response.commit, vocabulary_size=self._vocabulary_size)
                case "heartbeat":
                    self._measure(response.heartbeat)
                case "going_away":
                    grace_s = response.going_away.grace_s
                    logger.info("target is stopping", extra={"target": self.address, "grace_s": grace_s})
                    self.going_away.set()

    async def _next(self) -> pb.VerifyResponse | None:
        """Give the target's next word; ``None`` behind the last."""
        try:
            return await self._next_in_time()
        except GONE:
            self._note_gone()
            raise

    async def _next_in_time(self) -> pb.VerifyResponse | None:
        try:
            with errors_translated(self.address):
                async with asyncio.timeout(SILENCE_S):
                    return await anext(self._responses, None)
        except TimeoutError:
            self._metrics.lost_heartbeats.inc()
            raise TargetUnavailable(
                f"Target {self.address} has answered nothing for {SILENCE_S:g} s."
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_left or (task is not None and task.cancelling()):
                raise
            raise ServerDraining(
                f"Target {self.address} is stopping, and another one has taken the session."
            ) from None

    def leave(self) -> None:
        """Leave a target that stops, for another one that has taken the session."""
        self._is_left = True
        self._call.cancel()

    def close(self) -> None:
        """End the call."""
        self._outbox.close()
        self._call.cancel()

    async def beat(self) -> None:
        """Send signs of life, which measure the round trip; until cancelled."""
        while True:
            self._outbox.put(pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=monotonic_ns())))
            await asyncio.sleep(HEARTBEAT_S)

    def _measure(self, heartbeat: pb.Heartbeat) -> None:
        if heartbeat.echo_ns:
            round_trip_ns = monotonic_ns() - heartbeat.echo_ns
            self._metrics.round_trip_s.observe(round_trip_ns / NS_PER_S)
            self.min_round_trip_ns = min(self.min_round_trip_ns or round_trip_ns, round_trip_ns)


@contextmanager
def errors_translated(address: str) -> Iterator[None]:
    """Restore the errors that end a target's calls."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, f"target {address}") from error
