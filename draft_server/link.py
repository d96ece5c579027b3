"""The link to targets: what they are, and one bidirectional stream per session."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import monotonic_ns
from typing import Any

import grpc.aio

from draft_server.config import DraftConfig
from draft_server.metrics import DraftMetrics
from draft_server.resuming import ResumedSession
from draft_server.targets import Place, Targets
from specwhisper import __version__
from specwhisper.errors import PairMismatch, ServerDraining, SpecWhisperError, TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcriber import TargetDescription, TranscriberSession
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import AudioChunk, Candidates, Commit, Limits, Mode, Resume, WindowOpened
from specwhisper.wire import HEARTBEAT_S, PROTOCOL_VERSION, codec
from specwhisper.wire.channels import OPEN, Credentials, open_channel
from specwhisper.wire.metrics.tokens import NS_PER_S
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

logger = logging.getLogger(__name__)

SILENCE_S = 15.0  # a target that gives no sign of life for so long is gone, whatever its connection says
WELCOME_S = 60.0  # a busy target opens a session between two steps
LOOK_ROUND_S = 0.5  # how often a session on a target that stops looks for another one


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


class TargetSession:
    """One session on a target behind gRPC; see :class:`TranscriberSession`.

    Parameters
    ----------
    has_other : whether another target could take the session.
    """

    def __init__(
        self,
        address: str,
        outbox: Outbox,
        call: Any,
        responses: AsyncIterator[pb.VerifyResponse],
        limits: Limits,
        *,
        compress_audio: bool,
        vocabulary_size: int,
        has_other: Callable[[], Awaitable[bool]],
        metrics: DraftMetrics,
    ) -> None:
        self.address = address
        self._metrics = metrics
        self.limits = limits
        self.min_round_trip_ns = 0
        self._outbox = outbox
        self._call = call
        self._responses = responses
        self._compress_audio = compress_audio
        self._vocabulary_size = vocabulary_size
        self._has_other = has_other
        self._leaving: asyncio.Task[None] | None = None
        self._is_left = False

    def propose(self, block: Candidates) -> None:
        """Queue a block; it overtakes audio."""
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
                    self._leaving = self._leaving or asyncio.create_task(self._leave())

    async def _next(self) -> pb.VerifyResponse | None:
        """Give the target's next word; ``None`` behind the last."""
        try:
            with _errors_translated(self.address):
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
            raise ServerDraining(f"Target {self.address} is stopping, and another one is there.") from None

    async def _leave(self) -> None:
        """Leave a target that stops as soon as there is another one; until then it goes on here."""
        while not await self._has_other():
            await asyncio.sleep(LOOK_ROUND_S)
        self._is_left = True
        self._call.cancel()

    def close(self) -> None:
        """End the call."""
        if self._leaving is not None:
            self._leaving.cancel()
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


class TargetLink:
    """A :class:`Transcriber` behind gRPC: finds out where there is room and opens sessions there.

    Parameters
    ----------
    addresses : of targets, or of fronts that answer ``Locate`` for many.
    credentials : how they are reached, and who this server is to them.
    connect_timeout_s : how long to wait for a target that is not there, or not yet.
    resume_timeout_s : how long a recording whose target is lost looks for another one.
    """

    def __init__(
        self,
        *addresses: str,
        credentials: Credentials = OPEN,
        compress_audio: bool = False,
        connect_timeout_s: float = 5.0,
        resume_timeout_s: float = 60.0,
        metrics: DraftMetrics | None = None,
    ) -> None:
        self._metrics = metrics or DraftMetrics(DraftConfig())
        self.address = ", ".join(addresses)
        self._targets = Targets(addresses, self._locate)
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._compress_audio = compress_audio
        self._connect_timeout_s = connect_timeout_s
        self._resume_timeout_s = resume_timeout_s
        self._vocabulary: Vocabulary | None = None

    async def close(self) -> None:
        """Close the connection."""
        for channel in self._channels.values():
            await channel.close()

    async def describe(self) -> TargetDescription:
        """Ask a target what it is; the vocabulary crosses the wire only when it has changed."""
        return await self._targets.first(self._describe)

    async def _describe(self, address: str) -> TargetDescription:
        held = self._vocabulary
        request = pb.DescribeRequest(vocabulary_digest=held.digest if held else "")
        with _errors_translated(address):
            try:  # wait_for_ready: a target that is just starting is worth a moment
                reply = await self._stub(address).Describe(
                    request, timeout=self._connect_timeout_s, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                raise TargetUnavailable(
                    f"No target server answered at {address} within {self._connect_timeout_s:g} s; "
                    "is it running?"
                ) from error
        if reply.protocol_version != PROTOCOL_VERSION:
            raise PairMismatch(
                f"Target {address} (specwhisper {reply.software_version}) speaks protocol "
                f"{reply.protocol_version}, this draft server (specwhisper {__version__}) speaks "
                f"{PROTOCOL_VERSION}: run the same version on both."
            )
        if held is None or reply.HasField("vocabulary"):
            held = self._vocabulary = codec.vocabulary_from_proto(reply.vocabulary)
        return TargetDescription(
            model=reply.model,
            weights_digest=reply.weights_digest,
            vocabulary=held,
            num_mel_bins=reply.num_mel_bins,
            limits=codec.limits_from_proto(reply.limits),
        )

    async def _locate(self, address: str) -> Place:
        with _errors_translated(address):
            reply = await self._stub(address).Locate(pb.LocateRequest(), timeout=self._connect_timeout_s)
        return Place(reply.address or address, reply.lease, reply.free_slots)

    async def find_room(self) -> None:
        """Ask where a session could be opened now."""
        await self._targets.place()

    async def _has_other(self, address: str) -> bool:
        """Tell whether a session that leaves an address finds room at another one."""
        try:
            return (await self._targets.place(avoid=address)).address != address
        except SpecWhisperError:
            return False

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        resume: Resume | None = None,
    ) -> AsyncIterator[TranscriberSession]:
        """Open a session on a target that is what ``target`` says.

        That of a recording goes on elsewhere where its target is lost. Live audio goes on from a position:
        whoever follows its text knows that.
        """
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            software_version=__version__,
            draft_model=draft_model,
            vocabulary_digest=target.vocabulary.digest,
            weights_digest=target.weights_digest,
            mode=codec.mode_to_proto(mode),
            max_ahead_tokens=target.limits.max_ahead_tokens,
            options=codec.decoding_options_to_proto(options),
            session=session_id,
        )
        open_once = partial(self._open_once, hello, len(target.vocabulary))
        if options.live is not None:
            async with open_once() as once:
                yield once
            return
        session = ResumedSession(
            session_id, open_once, target.limits, self._resume_timeout_s, self._metrics, resume
        )
        async with session:
            yield session

    @asynccontextmanager
    async def _open_once(
        self, hello: pb.Hello, vocabulary_size: int, resume: Resume | None = None, avoid: str = ""
    ) -> AsyncIterator[TargetSession]:
        """Open a session on one target, which begins a transcription or goes on with it."""
        place = await self._targets.place(avoid)
        outbox = Outbox()
        outbox.put(pb.VerifyRequest(hello=_with_lease(hello, place.lease)))
        if resume is not None:
            outbox.put(pb.VerifyRequest(resume=codec.resume_to_proto(resume)))
        with _errors_translated(place.address):
            call = with_true_status(self._stub(place.address).Verify(outbox))
            try:
                responses = aiter(call)
                session = TargetSession(
                    place.address,
                    outbox,
                    call,
                    responses,
                    await self._welcomed(place.address, responses),
                    compress_audio=self._compress_audio,
                    vocabulary_size=vocabulary_size,
                    has_other=partial(self._has_other, place.address),
                    metrics=self._metrics,
                )
                beating = asyncio.create_task(session.beat())
                try:
                    yield session
                finally:
                    beating.cancel()
                    session.close()
            finally:
                outbox.close()
                call.cancel()

    async def _welcomed(self, address: str, responses: AsyncIterator[pb.VerifyResponse]) -> Limits:
        """Wait for the welcome, and give the limits that it names."""
        try:
            async with asyncio.timeout(WELCOME_S):
                first = await anext(responses, None)
        except TimeoutError:
            raise TargetUnavailable(
                f"Target {address} has not welcomed a session within {WELCOME_S:g} s."
            ) from None
        if first is None or first.WhichOneof("message") != "welcome":
            raise TargetUnavailable(f"Target {address} began a session without a welcome.")
        return codec.limits_from_proto(first.welcome.limits)

    def _stub(self, address: str) -> verification_pb2_grpc.VerificationStub:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._credentials)
        return verification_pb2_grpc.VerificationStub(self._channels[address])


def _with_lease(hello: pb.Hello, lease: str) -> pb.Hello:
    leased = pb.Hello(lease=lease)
    leased.MergeFrom(hello)
    return leased


@contextmanager
def _errors_translated(address: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, f"target {address}") from error
