"""The link to a target: what it is, and one bidirectional stream per session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic_ns

import grpc.aio

from specwhisper import __version__
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    AudioChunk,
    Candidates,
    DecodingOptions,
    Finished,
    FromTarget,
    Limits,
    Mode,
    Resume,
    ToTarget,
)
from specwhisper.wire import PROTOCOL_VERSION, codec
from specwhisper.wire.channels import open_channel
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

CONNECT_TIMEOUT_S = 5.0
HEARTBEAT_S = 5.0


@dataclass(frozen=True)
class TargetDescription:
    """What a draft must know of its target."""

    model: str
    weights_digest: str
    vocabulary: Vocabulary
    num_mel_bins: int
    limits: Limits


class Outbox:
    """What waits to be sent: candidates overtake audio, so that a block never queues behind a recording."""

    def __init__(self) -> None:
        self._urgent: deque[pb.VerifyRequest] = deque()
        self._audio: deque[pb.VerifyRequest] = deque()
        self._is_filled = asyncio.Event()
        self._is_empty = asyncio.Event()

    def put(self, request: pb.VerifyRequest) -> None:
        """Queue a message."""
        (self._audio if request.WhichOneof("message") == "audio" else self._urgent).append(request)
        self._is_filled.set()
        self._is_empty.clear()

    async def wait_sent(self) -> None:
        """Wait until everything queued has gone out: the brake for whoever reads a recording."""
        if self._urgent or self._audio:
            await self._is_empty.wait()

    async def __aiter__(self) -> AsyncIterator[pb.VerifyRequest]:
        while True:
            while self._urgent or self._audio:
                yield (self._urgent or self._audio).popleft()
            self._is_empty.set()
            self._is_filled.clear()
            await self._is_filled.wait()


class TargetSession:
    """One session on a target: send audio and candidates, iterate over windows and commits.

    Attributes
    ----------
    limits : what the target lets this session send.
    min_round_trip_ns : smallest round trip measured so far, 0 before the first.
    """

    def __init__(self, outbox: Outbox, welcome: pb.Welcome, *, compress_audio: bool) -> None:
        self.limits = codec.limits_from_proto(welcome.limits)
        self.min_round_trip_ns = 0
        self.outbox = outbox
        self._compress_audio = compress_audio

    def send(self, message: ToTarget) -> None:
        """Queue a message for the target."""
        match message:
            case AudioChunk():
                audio = codec.audio_chunk_to_proto(message, compress=self._compress_audio)
                self.outbox.put(pb.VerifyRequest(audio=audio))
            case Candidates():
                self.outbox.put(pb.VerifyRequest(candidates=codec.candidates_to_proto(message)))
            case Resume():
                self.outbox.put(pb.VerifyRequest(resume=codec.resume_to_proto(message)))

    async def events(self, responses: AsyncIterator[pb.VerifyResponse]) -> AsyncIterator[FromTarget]:
        """Give what the target says, :class:`Finished` last."""
        async for response in responses:
            match response.WhichOneof("message"):
                case "window_opened":
                    yield codec.window_opened_from_proto(response.window_opened)
                case "commit":
                    yield codec.commit_from_proto(response.commit)
                case "heartbeat":
                    self._measure(response.heartbeat)
        yield Finished()

    async def beat(self) -> None:
        """Send signs of life, which measure the round trip; until cancelled."""
        while True:
            self.outbox.put(pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=monotonic_ns())))
            await asyncio.sleep(HEARTBEAT_S)

    def _measure(self, heartbeat: pb.Heartbeat) -> None:
        if heartbeat.echo_ns:
            round_trip_ns = monotonic_ns() - heartbeat.echo_ns
            self.min_round_trip_ns = min(self.min_round_trip_ns or round_trip_ns, round_trip_ns)


class TargetLink:
    """The way to a target: asks ``address`` where there is room and opens sessions there."""

    def __init__(self, address: str, *, compress_audio: bool = False) -> None:
        self.address = address
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._compress_audio = compress_audio
        self._description: TargetDescription | None = None

    async def close(self) -> None:
        """Close the connection."""
        for channel in self._channels.values():
            await channel.close()

    def _stub(self, address: str) -> verification_pb2_grpc.VerificationStub:
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return verification_pb2_grpc.VerificationStub(self._channels[address])

    async def describe(self) -> TargetDescription:
        """Ask the target what it is; remembered for as long as sessions open without complaint."""
        if self._description is None:
            try:  # wait_for_ready: a target that is just starting is worth a moment
                reply = await self._stub(self.address).Describe(
                    pb.DescribeRequest(), timeout=CONNECT_TIMEOUT_S, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise TargetUnavailable(
                        f"No target server answered at {self.address} within {CONNECT_TIMEOUT_S:.0f} s; "
                        f"is it running?"
                    ) from error
                raise self._translated(error) from error
            if reply.protocol_version != PROTOCOL_VERSION:
                raise PairMismatch(
                    f"Target {self.address} (specwhisper {reply.software_version}) speaks protocol "
                    f"{reply.protocol_version}, this draft server (specwhisper {__version__}) speaks "
                    f"{PROTOCOL_VERSION}: run the same version on both."
                )
            self._description = TargetDescription(
                model=reply.model,
                weights_digest=reply.weights_digest,
                vocabulary=codec.vocabulary_from_proto(reply.vocabulary),
                num_mel_bins=reply.num_mel_bins,
                limits=codec.limits_from_proto(reply.limits),
            )
        return self._description

    @asynccontextmanager
    async def open(
        self, session_id: str, mode: Mode, options: DecodingOptions, *, draft_model: str
    ) -> AsyncIterator[tuple[TargetSession, AsyncIterator[FromTarget]]]:
        """Open a session and give it together with what the target will say in it."""
        description = await self.describe()
        try:
            located = await self._stub(self.address).Locate(pb.LocateRequest(), timeout=CONNECT_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error
        outbox = Outbox()
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            software_version=__version__,
            draft_model=draft_model,
            vocabulary_digest=description.vocabulary.digest,
            mode=codec.mode_to_proto(mode),
            max_ahead_tokens=description.limits.max_ahead_tokens,
            options=codec.decoding_options_to_proto(options),
            lease=located.lease,
            session=session_id,
        )
        outbox.put(pb.VerifyRequest(hello=hello))
        call = self._stub(located.address or self.address).Verify(aiter(outbox))
        try:
            responses = aiter(call)
            first = await anext(responses)
            session = TargetSession(outbox, first.welcome, compress_audio=self._compress_audio)
            yield session, session.events(responses)
        except grpc.aio.AioRpcError as error:
            self._description = None  # another model may have taken its place
            raise self._translated(error) from error
        except StopAsyncIteration as error:
            raise TargetUnavailable(f"Target {self.address} ended a session without a welcome.") from error
        finally:
            call.cancel()

    def _translated(self, error: grpc.aio.AioRpcError) -> Exception:
        return error_from_rpc(error, f"target {self.address}")
