"""The link to a target: what it is, and one bidirectional stream per session."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic_ns

import grpc.aio

from specwhisper import __version__
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import AudioChunk, Candidates, Commit, Limits, Mode, WindowOpened
from specwhisper.wire import HEARTBEAT_S, PROTOCOL_VERSION, codec
from specwhisper.wire.channels import open_channel
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

logger = logging.getLogger(__name__)

SILENCE_S = 15.0  # a target that gives no sign of life for so long is gone, whatever its connection says
WELCOME_S = 60.0  # a busy target opens a session between two steps


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
    """One session on a target behind gRPC; see :class:`TranscriberSession`."""

    def __init__(
        self,
        outbox: Outbox,
        responses: AsyncIterator[pb.VerifyResponse],
        limits: Limits,
        *,
        address: str,
        compress_audio: bool,
    ) -> None:
        self.limits = limits
        self._address = address
        self.min_round_trip_ns = 0
        self._outbox = outbox
        self._responses = responses
        self._compress_audio = compress_audio

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
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    response = await anext(self._responses, None)
            except TimeoutError:
                raise TargetUnavailable(
                    f"Target {self._address} has answered nothing for {SILENCE_S:g} s."
                ) from None
            if response is None:
                return
            match response.WhichOneof("message"):
                case "window_opened":
                    yield codec.window_opened_from_proto(response.window_opened)
                case "commit":
                    yield codec.commit_from_proto(response.commit)
                case "heartbeat":
                    self._measure(response.heartbeat)
                case "going_away":
                    logger.info(
                        "target is stopping",
                        extra={"target": self._address, "grace_s": response.going_away.grace_s},
                    )

    async def beat(self) -> None:
        """Send signs of life, which measure the round trip; until cancelled."""
        while True:
            self._outbox.put(pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=monotonic_ns())))
            await asyncio.sleep(HEARTBEAT_S)

    def _measure(self, heartbeat: pb.Heartbeat) -> None:
        if heartbeat.echo_ns:
            round_trip_ns = monotonic_ns() - heartbeat.echo_ns
            self.min_round_trip_ns = min(self.min_round_trip_ns or round_trip_ns, round_trip_ns)


class TargetLink:
    """A :class:`Transcriber` behind gRPC: asks ``address`` where there is room and opens sessions there.

    Parameters
    ----------
    connect_timeout_s : how long to wait for a target that is not there, or not yet.
    """

    def __init__(self, address: str, *, compress_audio: bool = False, connect_timeout_s: float = 5.0) -> None:
        self.address = address
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._compress_audio = compress_audio
        self._connect_timeout_s = connect_timeout_s
        self._vocabulary: Vocabulary | None = None

    async def close(self) -> None:
        """Close the connection."""
        for channel in self._channels.values():
            await channel.close()

    async def describe(self) -> TargetDescription:
        """Ask the target what it is; its vocabulary crosses the wire only when it has changed."""
        held = self._vocabulary
        request = pb.DescribeRequest(vocabulary_digest=held.digest if held else "")
        with self._errors_translated():
            try:  # wait_for_ready: a target that is just starting is worth a moment
                reply = await self._stub(self.address).Describe(
                    request, timeout=self._connect_timeout_s, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                raise TargetUnavailable(
                    f"No target server answered at {self.address} within {self._connect_timeout_s:g} s; "
                    "is it running?"
                ) from error
        if reply.protocol_version != PROTOCOL_VERSION:
            raise PairMismatch(
                f"Target {self.address} (specwhisper {reply.software_version}) speaks protocol "
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

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
    ) -> AsyncIterator[TargetSession]:
        """Open a session on a target that is what ``target`` says."""
        with self._errors_translated():
            located = await self._stub(self.address).Locate(
                pb.LocateRequest(), timeout=self._connect_timeout_s
            )
            outbox = Outbox()
            hello = pb.Hello(
                protocol_version=PROTOCOL_VERSION,
                software_version=__version__,
                draft_model=draft_model,
                vocabulary_digest=target.vocabulary.digest,
                weights_digest=target.weights_digest,
                mode=codec.mode_to_proto(mode),
                max_ahead_tokens=target.limits.max_ahead_tokens,
                options=codec.decoding_options_to_proto(options),
                lease=located.lease,
                session=session_id,
            )
            outbox.put(pb.VerifyRequest(hello=hello))
            call = with_true_status(self._stub(located.address or self.address).Verify(outbox))
            try:
                responses = aiter(call)
                first = await self._first(responses)
                if first is None or first.WhichOneof("message") != "welcome":
                    raise TargetUnavailable(f"Target {self.address} began a session without a welcome.")
                limits = codec.limits_from_proto(first.welcome.limits)
                session = TargetSession(
                    outbox,
                    responses,
                    limits,
                    address=self.address,
                    compress_audio=self._compress_audio,
                )
                beating = asyncio.create_task(session.beat())
                try:
                    yield session
                finally:
                    beating.cancel()
            finally:
                outbox.close()
                call.cancel()

    async def _first(self, responses: AsyncIterator[pb.VerifyResponse]) -> pb.VerifyResponse | None:
        try:
            async with asyncio.timeout(WELCOME_S):
                return await anext(responses, None)
        except TimeoutError:
            raise TargetUnavailable(
                f"Target {self.address} has not welcomed a session within {WELCOME_S:g} s."
            ) from None

    def _stub(self, address: str) -> verification_pb2_grpc.VerificationStub:
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return verification_pb2_grpc.VerificationStub(self._channels[address])

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, f"target {self.address}") from error
