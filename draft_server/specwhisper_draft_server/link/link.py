"""The link to targets: what they are, where there is room, and sessions there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from copy import copy
from functools import partial

import grpc.aio

from specwhisper import __version__
from specwhisper.errors import GONE, PairMismatch, TargetUnavailable
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.streams import with_true_status
from specwhisper.transcription.transcriber import TargetDescription, TargetStream
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode, Resume
from specwhisper.wire import WELCOME_S, codec
from specwhisper.wire.status import refused_handshake
from specwhisper.wire.v1 import decoding_pb2, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.versions import LINK, Protocols, check_protocol
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.link.announcements import SaidOverConnections
from specwhisper_draft_server.link.channels import Channels
from specwhisper_draft_server.link.choosing import Place
from specwhisper_draft_server.link.connecting import ANSWER_S, wait_connected
from specwhisper_draft_server.link.grpc_target_stream import GrpcTargetStream, Outbox, errors_translated
from specwhisper_draft_server.link.needs import ANY, Needs
from specwhisper_draft_server.link.opening import opened_at_one
from specwhisper_draft_server.link.targets import Targets
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.resuming import ResumingTargetStream

REASON_S = 1.0  # for why a connection fails, which is known where it has been tried
MAX_DESCRIPTIONS = 8  # that are kept, of targets with different weights


class TargetLink:
    """A :class:`Transcriber` behind gRPC: finds out where there is room and opens sessions there.

    Parameters
    ----------
    addresses : of targets, or of locators that answer ``Locate`` for many.
    credentials : how they are reached, and who this server is to them.
    connect_timeout_s : how long to wait for a target that is not there, or not yet; one that is only far away
        has longer to connect (:mod:`specwhisper_draft_server.link.connecting`).
    resume_timeout_s : how long a recording whose target is lost, also while it opens, looks for another one.
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
        self._targets = Targets(addresses)
        self._channels = Channels(credentials, self._targets.knows)
        self._compress_audio = compress_audio
        self._connect_timeout_s = connect_timeout_s
        self._resume_timeout_s = resume_timeout_s
        self._said = SaidOverConnections(addresses)
        self._vocabulary: Vocabulary | None = None
        self._descriptions: dict[str, TargetDescription] = {}  # by weights, the newest last
        self._place: Place | None = None  # found already

    async def check_health(self) -> None:
        """Return: targets report their own health."""

    async def close(self) -> None:
        """Close the connections."""
        await self._channels.close()

    def known(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription | None:
        """Return what a target has said that it is, over a connection that is still up."""
        needs = Needs(vocabulary_digest, weights_digest, unusable)
        for address in self._targets.named:
            target = self._said.at(address).target
            if target is not None and needs.are_met_by(target) and self._channels.is_connected(address):
                return target
        return None

    async def describe(
        self, *, vocabulary_digest: str = "", weights_digest: str = "", unusable: Mapping[str, str] = {}
    ) -> TargetDescription:
        """Ask a target what it is; the vocabulary crosses the wire only when it has changed."""
        needs = Needs(vocabulary_digest, weights_digest, unusable)
        known = self._descriptions.get(weights_digest)
        if known is not None and needs.are_met_by(known):
            return known
        mismatched: list[str] = []

        async def ask(address: str) -> TargetDescription:
            try:
                return await self._describe(address, needs)
            except PairMismatch:
                mismatched.append(address)
                raise

        try:
            return await self._targets.first(ask)
        except (PairMismatch, TargetUnavailable):  # the latter also where some of them are away
            if needs == ANY or not mismatched:
                raise
        place = await self._find(needs)  # a locator describes one target, and leads to others
        return await self._describe(place.address, needs)

    async def _describe(self, address: str, needs: Needs) -> TargetDescription:
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
        protocols = Protocols(reply.protocol_version, reply.oldest_protocol_version)
        check_protocol(
            f"Target {address}", protocols, reply.software_version, here="this draft server", own=LINK
        )
        if held is None or reply.HasField("vocabulary"):
            held = self._vocabulary = codec.vocabulary_from_proto(reply.vocabulary)
        target = TargetDescription(
            model=reply.model,
            weights_digest=reply.weights_digest,
            vocabulary=held,
            num_mel_bins=reply.num_mel_bins,
            limits=codec.limits_from_proto(reply.limits),
        )
        self._said.describe(address, target)
        needs.check(address, target)
        self._note_description(target)
        return target

    def _note_description(self, target: TargetDescription) -> None:
        self._descriptions.pop(target.weights_digest, None)
        self._descriptions[target.weights_digest] = target
        while len(self._descriptions) > MAX_DESCRIPTIONS:
            del self._descriptions[next(iter(self._descriptions))]

    async def _refused_handshake(
        self, stub: verification_pb2_grpc.VerificationStub, address: str
    ) -> str | None:
        """Ask why who does not answer does not: gRPC keeps it to itself while it waits for a connection."""
        try:
            await stub.Describe(pb.DescribeRequest(), timeout=REASON_S)
        except grpc.aio.AioRpcError as error:
            return refused_handshake(error.details() or "", address)
        return None

    async def _find(self, needs: Needs, avoid: Collection[str] = ()) -> Place:
        """Ask all targets for a place."""
        request = pb.LocateRequest(
            weights_digest=needs.weights_digest,
            vocabulary_digest=needs.vocabulary_digest,
            protocol_version=LINK.version,
            oldest_protocol_version=LINK.oldest,
            avoid=avoid,
            software_version=__version__,
        )
        return await self._targets.place(partial(self._locate, request=request), avoid)

    async def _locate(self, address: str, request: pb.LocateRequest) -> Place:
        async with self._asking(address) as stub:
            reply = await stub.Locate(request, timeout=ANSWER_S)
        self._said.locate(address, takes_sessions=not (reply.address or reply.lease))
        return Place(reply.address or address, reply.lease, reply.free_slots)

    async def find_room(
        self, target: TargetDescription | None = None, *, same_weights: bool = False, avoid: str = ""
    ) -> TargetLink:
        """Ask where a session could be opened now; what is returned asks no more if it finds room there."""
        there = copy(self)
        needs = Needs.of(target, same_weights=same_weights)
        there._place = await self._find(needs, [avoid] if avoid else [])
        return there

    def _only_place(self, avoid: str) -> Place | None:
        """Give the place that needs no question, where there is but one target, which needs no lease."""
        address, *others = self._targets.named
        takes_sessions = self._said.at(address).takes_sessions and self._channels.is_connected(address)
        return Place(address) if takes_sessions and not others and address != avoid else None

    @asynccontextmanager
    async def _asking(self, address: str) -> AsyncIterator[verification_pb2_grpc.VerificationStub]:
        """Give what calls a target; errors of its calls are restored, and noted where it is gone."""
        try:
            if not self._channels.is_connected(address):
                self._said.forget(address)
            async with self._channels.using(address) as channel:
                with errors_translated(address):
                    yield verification_pb2_grpc.VerificationStub(channel)
        except PairMismatch:
            self._said.forget(address)
            raise
        except GONE:
            self._said.forget(address)
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
        same_weights: bool = False,
        avoid: str = "",
        resume: Resume | None = None,
    ) -> AsyncIterator[TargetStream]:
        """Open a session on a target; see :class:`Transcriber`.

        That of a recording goes on elsewhere where its target is lost. Live audio goes on from a position:
        whoever follows its text knows that.
        """
        hello = pb.Hello(
            protocol_version=LINK.version,
            oldest_protocol_version=LINK.oldest,
            software_version=__version__,
            draft_model=draft_model,
            vocabulary_digest=target.vocabulary.digest,
            mode=codec.mode_to_proto(mode),
            max_ahead_tokens=target.limits.max_ahead_tokens,
            options=codec.decoding_options_to_proto(options),
            session=session_id,
        )
        open_once = partial(self._open_once, hello)
        if options.live is not None:
            async with open_once(target, same_weights=same_weights, avoid=avoid) as once:
                yield once
            return
        session = ResumingTargetStream(
            session_id,
            open_once,
            target,
            self._resume_timeout_s,
            self._metrics,
            resume,
            same_weights=same_weights,
        )
        async with session:
            yield session

    @asynccontextmanager
    async def _open_once(
        self, hello: pb.Hello, target: TargetDescription, *, same_weights: bool, avoid: str
    ) -> AsyncIterator[GrpcTargetStream]:
        """Open a session on one target, which has taken it then, and waits to learn where it begins."""
        needs = Needs.of(target, same_weights=same_weights)
        opened = opened_at_one(
            partial(self._find, needs),
            partial(self._open_at, hello=hello, target=target, needs=needs),
            avoid=avoid,
            place=self._place or self._only_place(avoid),
        )
        async with opened as session:
            yield session

    @asynccontextmanager
    async def _open_at(
        self, place: Place, hello: pb.Hello, target: TargetDescription, needs: Needs
    ) -> AsyncIterator[GrpcTargetStream]:
        outbox = Outbox()
        hello_there = pb.Hello(lease=place.lease, weights_digest=needs.weights_digest)
        hello_there.MergeFrom(hello)
        outbox.put(pb.VerifyRequest(hello=hello_there))
        async with self._asking(place.address) as stub:
            call = with_true_status(stub.Verify(outbox))
            try:
                responses = aiter(call)
                with self._targets.opening(place.address):
                    welcome = await _welcomed(place.address, responses)
                session = GrpcTargetStream(
                    place.address,
                    outbox,
                    call,
                    responses,
                    await self._description(place.address, welcome.weights_digest, target, hello.options),
                    codec.limits_from_proto(welcome.limits),
                    compress_audio=self._compress_audio,
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

    async def _description(
        self,
        address: str,
        weights: str,
        expected: TargetDescription,
        options: decoding_pb2.DecodingOptions,
    ) -> TargetDescription:
        """Return what a target is that has welcomed a session, and is mostly what was expected."""
        is_expected = weights == expected.weights_digest
        described = expected if is_expected else self._descriptions.get(weights)
        if described is None:
            described = await self._describe(address, Needs(expected.vocabulary.digest, weights))
        # A target computes its own features, but not the maximum of a whole recording.
        bins, maxima = described.num_mel_bins, options.log_mel_max
        if maxima and bins not in maxima:
            raise PairMismatch(
                f"Target {address} ('{described.model}') has {bins} mel bins; the recording's log_mel_max is "
                f"of {', '.join(map(str, sorted(maxima)))} bins: send it for all that `GetModel` names."
            )
        if is_expected:
            return expected
        self._said.describe(address, described)
        return described


async def _welcomed(address: str, responses: AsyncIterator[pb.VerifyResponse]) -> pb.Welcome:
    """Wait for the welcome."""
    try:
        async with asyncio.timeout(WELCOME_S):
            first = await anext(responses, None)
    except TimeoutError:
        raise TargetUnavailable(
            f"Target {address} has not welcomed a session within {WELCOME_S:g} s."
        ) from None
    if first is None or first.WhichOneof("message") != "welcome":
        raise TargetUnavailable(f"Target {address} began a session without a welcome.")
    return first.welcome
