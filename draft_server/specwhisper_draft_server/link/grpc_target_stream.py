"""One session on a target over gRPC.

Candidates, windows and commits go through a call that all sessions at the target share
(:mod:`.candidate_channel`). The session's own call carries audio, hints, control, errors and its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from time import monotonic_ns

import grpc.aio

from specwhisper.errors import ServerDraining, SlowReader, TargetUnavailable
from specwhisper.live import LivePosition
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import (
    NS_PER_S,
    AudioChunk,
    Candidates,
    Commit,
    ConfirmEvery,
    Limits,
    Resume,
    TimedHint,
    WindowOpened,
)
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, WELCOME_S, codec
from specwhisper.wire.pacing import PacedStream, SendWindow
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.candidate_channel import CandidateChannel, error_of_target
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import Message, TargetDescription

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 * 1024  # audio in a message on a fast link; candidates have another call
MAX_UNREAD = 8_192  # responses

Response = pb.VerifyResponse | pb.WindowOpened | pb.Commit


class Outbox:
    """Requests that wait to be sent.

    All other requests overtake audio, so that none is late.
    """

    def __init__(self) -> None:
        self._waiting: asyncio.PriorityQueue[tuple[int, int, pb.VerifyRequest | None]] = (
            asyncio.PriorityQueue()
        )
        self._numbers = count()

    def put(self, request: pb.VerifyRequest, *, after_audio: bool = False) -> None:
        is_late = after_audio or request.WhichOneof("message") == "audio"
        self._waiting.put_nowait((is_late, next(self._numbers), request))

    async def wait_sent(self) -> None:
        await self._waiting.join()

    def close(self) -> None:
        """End the iteration, which gRPC does not stop when the call ends."""
        self._waiting.put_nowait((-1, 0, None))

    async def __aiter__(self) -> AsyncIterator[pb.VerifyRequest]:
        while (request := (await self._waiting.get())[2]) is not None:
            yield request
            self._waiting.task_done()


class GrpcTargetStream:
    """One session on a target over gRPC; see :class:`TargetStream`.

    Creating it sends the hello; :meth:`welcome` returns the target's answer. Heartbeats mark what has arrived
    of the audio in flight.
    """

    def __init__(
        self,
        address: str,
        stub: verification_pb2_grpc.VerificationStub,
        channel: CandidateChannel,
        hello: pb.Hello,
        target: TargetDescription,
        *,
        window: SendWindow,
        metrics: DraftMetrics,
    ) -> None:
        self.address = address
        self.target = target
        self.limits: Limits = target.limits
        self.min_round_trip_ns = 0
        self.going_away = asyncio.Event()
        self._metrics = metrics
        self._paced = PacedStream(window)
        self._received: asyncio.Queue[Response | BaseException | None] = asyncio.Queue()
        self._num_open = 2  # calls whose responses have not ended
        self._has_all_events = False
        self._channel = channel
        self._number = hello.share_number = channel.join(self.receive)
        hello.share_key = channel.key
        self._outbox = Outbox()
        self._outbox.put(pb.VerifyRequest(hello=hello))
        self._call = with_true_status(stub.Verify(self._outbox))
        self._tasks = [asyncio.create_task(self._read_own())]

    async def welcome(self) -> pb.Welcome:
        try:
            first = await self._next(WELCOME_S)
        except TimeoutError:
            raise TargetUnavailable(
                f"Target {self.address} has not accepted a session within {WELCOME_S:g} s; is it overloaded?"
            ) from None
        if not isinstance(first, pb.VerifyResponse) or first.WhichOneof("message") != "welcome":
            raise TargetUnavailable(f"Target {self.address} began a session without `welcome`.")
        self._tasks.append(asyncio.create_task(self._beat()))
        return first.welcome

    def send(self, message: Message) -> None:
        """Queue a message; candidates are cut to the target's limit."""
        match message:
            case Candidates():
                if len(message.tokens) > (most := self.limits.max_block_tokens):
                    message = replace(message, tokens=message.tokens[:most])
                self._channel.blocks.put_nowait((self._number, message))
            case TimedHint():
                self._outbox.put(pb.VerifyRequest(hint=codec.hint_to_proto(message)))
            case ConfirmEvery():
                self._outbox.put(pb.VerifyRequest(confirm_every=codec.confirm_every_to_proto(message)))
            case LivePosition():
                self._outbox.put(pb.VerifyRequest(position=codec.live_position_to_proto(message)))
            case Resume():
                self._outbox.put(pb.VerifyRequest(resume=codec.resume_to_proto(message)))

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Send audio once there is room for it, and wait until it is sent.

        So the reader of a recording is slowed down.
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
        return self._paced.piece_bytes(PIECE_BYTES)

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        vocabulary_size = len(self.target.vocabulary)
        while True:
            try:
                response = await self._next(SILENCE_S)
            except TimeoutError:
                self._metrics.lost_heartbeats.inc()
                raise TargetUnavailable(
                    f"Target {self.address} has sent nothing for {SILENCE_S:g} s, not even a heartbeat."
                ) from None
            if response is None:
                return
            match response:
                case pb.WindowOpened():
                    yield codec.window_opened_from_proto(response, vocabulary_size=vocabulary_size)
                case pb.Commit():
                    yield codec.commit_from_proto(response, vocabulary_size=vocabulary_size)
                case pb.VerifyResponse() if response.HasField("heartbeat"):
                    self._measure(response.heartbeat)
                case pb.VerifyResponse() if response.HasField("going_away"):
                    reason, grace_s = response.going_away.reason, response.going_away.grace_s
                    log = {"target": self.address, "reason": reason, "grace_s": grace_s}
                    logger.info("target is stopping", extra=log)
                    self.going_away.set()

    async def _next(self, within_s: float) -> Response | None:
        """Return the next response of either call; ``None`` after the last."""
        while self._num_open:
            async with asyncio.timeout(within_s):
                item = await self._received.get()
            if isinstance(item, BaseException):
                raise item
            if item is not None:
                return item
            self._num_open -= 1
        return None

    def receive(self, event: pb.SharedEvent | Exception) -> None:
        if self._has_all_events:  # that call may end before the session's own call
            return
        if isinstance(event, Exception):
            self._put(event)
        elif event.is_finished:
            self._has_all_events = True
            self._put(None)
        elif event.WhichOneof("message") is not None:
            self._put(event.window_opened if event.HasField("window_opened") else event.commit)

    async def _read_own(self) -> None:
        try:
            async for response in self._call:
                self._put(response)
            self._put(None)
        except grpc.aio.AioRpcError as failure:
            self._put(error_of_target(failure, self.address))
        except Exception as bug:
            self._put(bug)

    def _put(self, item: Response | BaseException | None) -> None:
        if self._received.qsize() < MAX_UNREAD:
            self._received.put_nowait(item)
        elif self._received.qsize() == MAX_UNREAD:  # further ones are dropped
            self._received.put_nowait(SlowReader(f"More than {MAX_UNREAD} responses are unread."))

    def leave(self) -> None:
        """End the stream after another target has taken the session: :meth:`events` raises."""
        self._put(ServerDraining(f"Another target has taken the session of target {self.address}."))

    def close(self) -> None:
        self._channel.leave(self._number)
        for task in self._tasks:
            task.cancel()
        self._outbox.close()
        self._call.cancel()

    async def _beat(self) -> None:
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
