"""The link to targets: what they are, where there is room, and sessions there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from functools import partial

import grpc.aio

from draft_server.channels import Channels
from draft_server.config import DraftConfig
from draft_server.connecting import ANSWER_S, wait_connected
from draft_server.metrics import DraftMetrics
from draft_server.resuming import ResumedSession
from draft_server.target_session import Outbox, TargetSession, errors_translated
from draft_server.targets import Place, Targets
from specwhisper import __version__
from specwhisper.errors import GONE, PairMismatch, TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcriber import TargetDescription, TranscriberSession
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Limits, Mode, Resume
from specwhisper.wire import PROTOCOL_VERSION, WELCOME_S, codec
from specwhisper.wire.channels import OPEN, Credentials
from specwhisper.wire.status import refused_handshake
from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

REASON_S = 1.0  # for why a connection fails, which is known where it has been tried


class TargetLink:
    """A :class:`Transcriber` behind gRPC: finds out where there is room and opens sessions there.

    Parameters
    ----------
    addresses : of targets, or of fronts that answer ``Locate`` for many.
    credentials : how they are reached, and who this server is to them.
    connect_timeout_s : how long to wait for a target that is not there, or not yet; one that is only far away
        has longer to connect (:mod:`draft_server.connecting`).
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
        self._channels = Channels(credentials, self._targets.knows)
        self._compress_audio = compress_audio
        self._connect_timeout_s = connect_timeout_s
        self._resume_timeout_s = resume_timeout_s
        self._vocabulary: Vocabulary | None = None
        self._place: Place | None = None  # found already

    async def check_health(self) -> None:
        """Return: targets report their own health."""

    async def close(self) -> None:
        """Close the connections."""
        await self._channels.close()

    async def describe(self) -> TargetDescription:
        """Ask a target what it is; the vocabulary crosses the wire only when it has changed."""
        return await self._targets.first(self._describe)

    async def _describe(self, address: str) -> TargetDescription:
        held = self._vocabulary
        request = pb.DescribeRequest(vocabulary_digest=held.digest if held else "")
        async with self._asking(address) as stub:
            try:  # a target that is just starting is worth a moment
                async with self._channels.using(address) as channel:
                    await wait_connected(channel, address, self._connect_timeout_s)
            except TargetUnavailable as error:
                if (reason := await self._refused_handshake(stub, address)) is None:
                    raise
                raise TargetUnavailable(reason) from error
            reply = await stub.Describe(request, timeout=ANSWER_S)
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

    async def _refused_handshake(
        self, stub: verification_pb2_grpc.VerificationStub, address: str
    ) -> str | None:
        """Ask why who does not answer does not: gRPC keeps it to itself while it waits for a connection."""
        try:
            await stub.Describe(pb.DescribeRequest(), timeout=REASON_S)
        except grpc.aio.AioRpcError as error:
            return refused_handshake(error.details() or "", address)
        return None

    async def _locate(self, address: str) -> Place:
        async with self._asking(address) as stub:
            reply = await stub.Locate(pb.LocateRequest(), timeout=ANSWER_S)
        return Place(reply.address or address, reply.lease, reply.free_slots)

    async def find_room(self, avoid: str = "") -> TargetLink:
        """Ask where a session could be opened now, and lead there: that of live audio asks no more."""
        there = copy(self)
        there._place = await self._targets.place(avoid)
        return there

    @asynccontextmanager
    async def _asking(self, address: str) -> AsyncIterator[verification_pb2_grpc.VerificationStub]:
        """Give what calls a target; errors of its calls are restored, and noted where it is gone."""
        try:
            async with self._channels.using(address) as channel:
                with errors_translated(address):
                    yield verification_pb2_grpc.VerificationStub(channel)
        except GONE:
            self._targets.note_gone(address)
            raise

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
            async with open_once(avoid="", place=self._place) as once:
                yield once
            return
        session = ResumedSession(
            session_id, open_once, target.limits, self._resume_timeout_s, self._metrics, resume
        )
        async with session:
            yield session

    @asynccontextmanager
    async def _open_once(
        self, hello: pb.Hello, vocabulary_size: int, avoid: str, place: Place | None = None
    ) -> AsyncIterator[TargetSession]:
        """Open a session on one target, which has taken it then, and waits to hear where it begins."""
        place = place or await self._targets.place(avoid)
        outbox = Outbox()
        outbox.put(pb.VerifyRequest(hello=_with_lease(hello, place.lease)))
        async with self._asking(place.address) as stub:
            call = with_true_status(stub.Verify(outbox))
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
                    note_gone=partial(self._targets.note_gone, place.address),
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


def _with_lease(hello: pb.Hello, lease: str) -> pb.Hello:
    leased = pb.Hello(lease=lease)
    leased.MergeFrom(hello)
    return leased
