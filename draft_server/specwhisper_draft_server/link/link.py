"""The link to targets: their descriptions, free slots, and sessions on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import TypeVar

import grpc
import grpc.aio

from specwhisper import __version__
from specwhisper.errors import (
    GONE,
    RETRY_OTHER_TARGET,
    PairMismatch,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import OPEN, Credentials, open_channel
from specwhisper.types import Mode
from specwhisper.wire import PROTOCOL_VERSION, check_protocol, codec
from specwhisper.wire.pacing import SendWindow
from specwhisper.wire.status import ended_by_server, has_broken
from specwhisper.wire.v1 import decoding_pb2, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.link.candidate_channel import CandidateChannel, error_of_target
from specwhisper_draft_server.link.grpc_target_stream import GrpcTargetStream
from specwhisper_draft_server.link.targets import TargetOffer, Targets
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import ANY, Requirements, TargetDescription, TargetStream

RETRY_S = 0.05  # between two calls to a target that refuses connections
UNKNOWN_S = 0.25  # expected answer time of a target that hasn't answered yet
# Time limit of a unary call. gRPC gives an attempt to connect 20 s: two round trips, or four with TLS.
ANSWER_S = 30.0

Opened = TypeVar("Opened")
Find = Callable[[Collection[str]], Awaitable[TargetOffer]]


class Connection:
    """The connection to a target or a locator, and what is known while it is up.

    A target doesn't change while it runs, and its successor has another connection.

    Attributes
    ----------
    window : limits the audio in flight.
    num_users : calls and sessions that use it now.
    description : the target's; ``None`` if it has to be asked.
    needs_lease : whether sessions need a lease, as far as is known.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.address = address
        self.channel = open_channel(address, credentials)
        self.stub = verification_pb2_grpc.VerificationStub(self.channel)
        self.window = SendWindow()
        self.num_users = 0
        self._candidates: CandidateChannel | None = None
        self.forget()

    def forget(self) -> None:
        self.description: TargetDescription | None = None
        self.needs_lease = True

    @property
    def is_up(self) -> bool:
        return self.channel.get_state() is grpc.ChannelConnectivity.READY

    def candidates(self) -> CandidateChannel:
        """Return the call that all sessions share; another one if it has ended."""
        if self._candidates is None or self._candidates.is_over:
            self._candidates = CandidateChannel(self.address, self.stub)
        return self._candidates


class TargetLink:
    """A :class:`Transcriber` over gRPC.

    It finds targets with free slots, and opens sessions on them.

    Parameters
    ----------
    addresses : targets, or locators that answer ``Locate`` for many.
    connect_timeout_s : time in seconds in which a target may refuse connections.
    """

    def __init__(
        self,
        *addresses: str,
        credentials: Credentials = OPEN,
        connect_timeout_s: float = 5.0,
        metrics: DraftMetrics | None = None,
    ) -> None:
        self._metrics = metrics or DraftMetrics(DraftConfig())
        self.address = ", ".join(addresses)
        self._targets = Targets(addresses)
        self._credentials = credentials
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[str, Connection] = {}
        self._last: TargetDescription | None = None  # also of a lost target

    async def check_health(self) -> None:
        """Return at once: targets report their own health."""

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.channel.close()

    def known(
        self, requirements: Requirements = ANY, *, in_outages: bool = False
    ) -> TargetDescription | None:
        """Return the description of a target whose connection is still up, if any."""
        targets = [connection.description for connection in self._connections.values() if connection.is_up]
        targets += [self._last] if in_outages else []
        return next((each for each in targets if each and requirements.are_met_by(each)), None)

    async def describe(self, requirements: Requirements = ANY) -> TargetDescription:
        try:
            return await self._targets.first(partial(self._describe, requirements=requirements))
        except (PairMismatch, TargetUnavailable):
            if requirements == ANY:
                raise
        offer = await self._find(requirements)  # a locator describes one target, but may name others
        return await self._describe(offer.address, requirements)

    async def _describe(self, address: str, requirements: Requirements) -> TargetDescription:
        """Ask a target.

        Its vocabulary takes seconds on a slow link, and is sent only if it is another one than the last.
        """
        held = self._last.vocabulary if self._last is not None else None
        async with self._using(address) as connection:
            reply = await self._ask(
                connection, pb.DescribeRequest(vocabulary_digest=held.digest if held else "")
            )
            check_protocol(
                f"Target {address}",
                reply.protocol_version,
                reply.software_version,
                here="this draft server",
                own=PROTOCOL_VERSION,
            )
            if held is None or reply.HasField("vocabulary"):
                held = codec.vocabulary_from_proto(reply.vocabulary)
            target = connection.description = self._last = TargetDescription(
                model=reply.model,
                weights_digest=reply.weights_digest,
                vocabulary=held,
                num_mel_bins=reply.num_mel_bins,
                limits=codec.limits_from_proto(reply.limits),
            )
        requirements.check(address, target)
        return target

    async def _ask(self, connection: Connection, request: pb.DescribeRequest) -> pb.DescribeResponse:
        """Call ``Describe``, again for a while if the target refuses connections: it may be starting."""
        until_s = monotonic() + self._connect_timeout_s
        while True:
            try:
                reply: pb.DescribeResponse = await connection.stub.Describe(request, timeout=ANSWER_S)
                return reply
            except grpc.aio.AioRpcError as failure:
                is_refused = failure.code() is grpc.StatusCode.UNAVAILABLE and not (
                    ended_by_server(failure) or has_broken(failure)
                )
                if not is_refused or monotonic() >= until_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _find(
        self, requirements: Requirements, avoid: Collection[str] = (), *, within_s: float | None = None
    ) -> TargetOffer:
        """Ask all targets for a free slot; with ``within_s``, accept only another that answers as fast."""
        request = pb.LocateRequest(
            weights_digest=requirements.weights_digest,
            vocabulary_digest=requirements.vocabulary_digest,
            protocol_version=PROTOCOL_VERSION,
            avoid=avoid,
            software_version=__version__,
        )
        return await self._targets.find(partial(self._locate, request=request, within_s=within_s), avoid)

    async def _locate(
        self, address: str, request: pb.LocateRequest, within_s: float | None = None
    ) -> TargetOffer:
        async with self._using(address) as connection:
            reply = await connection.stub.Locate(request, timeout=ANSWER_S)
            connection.needs_lease = bool(reply.address or reply.lease)
        offer = TargetOffer(reply.address or address, reply.lease, reply.free_slots, reply.is_standby)
        if within_s is not None:
            if offer.address in request.avoid or (reply.answer_s or UNKNOWN_S) > within_s:
                raise ServerFull(f"Target {offer.address} is not much faster than the session's own.")
        return offer

    async def check_room(self, target: TargetDescription) -> None:
        await self._find(Requirements.of(target, same_weights=True))

    def _only_target(self, avoid: str) -> TargetOffer | None:
        """Return the only target if it is connected and needs no lease."""
        address, *others = self._targets.configured
        connection = self._connections.get(address)
        if others or address == avoid or connection is None or connection.needs_lease:
            return None
        return TargetOffer(address) if connection.is_up else None

    @asynccontextmanager
    async def _using(self, address: str) -> AsyncIterator[Connection]:
        """Yield the connection to a server, and convert its calls' errors to ours.

        It is closed after its last use unless it is up, or the server is configured.
        """
        if address not in self._connections:
            self._connections[address] = Connection(address, self._credentials)
        connection = self._connections[address]
        if not connection.is_up:
            connection.forget()
        connection.num_users += 1
        try:
            try:
                yield connection
            except grpc.aio.AioRpcError as error:
                raise error_of_target(error, address) from error
        except (PairMismatch, *GONE):
            connection.forget()
            raise
        finally:
            connection.num_users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        unused = [
            each
            for each in self._connections.values()
            if not (each.num_users or each.is_up or each.address in self._targets.configured)
        ]
        for connection in unused:
            del self._connections[connection.address]
        for connection in unused:
            await connection.channel.close()

    def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        within_s: float | None = None,
    ) -> AbstractAsyncContextManager[TargetStream]:
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            software_version=__version__,
            draft_model=draft_model,
            vocabulary_digest=target.vocabulary.digest,
            mode=codec.mode_to_proto(mode),
            decoding=codec.decoding_options_to_proto(options),
            session=session_id,
        )
        requirements = Requirements.of(target, same_weights=same_weights)
        return opened_at_one(
            partial(self._find, requirements, within_s=within_s),
            partial(self._open_at, hello=hello, target=target, requirements=requirements),
            avoid=avoid,
            offer=self._only_target(avoid),
        )

    @asynccontextmanager
    async def _open_at(
        self, offer: TargetOffer, hello: pb.Hello, target: TargetDescription, requirements: Requirements
    ) -> AsyncIterator[GrpcTargetStream]:
        own_hello = pb.Hello(lease=offer.lease, weights_digest=requirements.weights_digest)
        own_hello.MergeFrom(hello)
        async with self._using(offer.address) as connection:
            session = GrpcTargetStream(
                offer.address,
                connection.stub,
                connection.candidates(),
                own_hello,
                target,
                window=connection.window,
                metrics=self._metrics,
            )
            try:
                with self._targets.opening(offer.address):
                    welcome = await session.welcome()
                session.limits = codec.limits_from_proto(welcome.limits)
                session.target = await self._description(
                    connection, welcome.weights_digest, target, hello.decoding
                )
                yield session
            finally:
                session.close()

    async def _description(
        self,
        connection: Connection,
        weights: str,
        expected: TargetDescription,
        options: decoding_pb2.DecodingOptions,
    ) -> TargetDescription:
        """Return the description of the target that has taken a session, by the weights in its welcome."""
        if weights == expected.weights_digest:
            described = expected
        elif (known := connection.description) is not None and known.weights_digest == weights:
            described = known
        else:
            required = Requirements(expected.vocabulary.digest, weights)
            described = await self._describe(connection.address, required)
        # A target computes features itself, but cannot know the maximum of a recording that is arriving.
        bins, maxima = described.num_mel_bins, options.log_mel_max
        if maxima and bins not in maxima:
            raise PairMismatch(
                f"Target {connection.address} ('{described.model}') has {bins} mel bins; the recording's "
                f"log_mel_max is of {', '.join(map(str, sorted(maxima)))} bins: send it for all that "
                "`GetModel` names."
            )
        return described


@asynccontextmanager
async def opened_at_one(
    find: Find,
    open_at: Callable[[TargetOffer], AbstractAsyncContextManager[Opened]],
    *,
    avoid: str = "",
    offer: TargetOffer | None = None,
) -> AsyncIterator[Opened]:
    """Open a session at the first target that takes it; raise an error if none does.

    This doesn't wait between attempts. If one target was lost and the others refuse, the loss is raised,
    since that target may soon be back.

    Parameters
    ----------
    find : returns a target with a free slot; it returns one of the given addresses only as a last resort.
    open_at : opens the session at a target.
    avoid : an address to try last.
    offer : the target to try first.
    """
    tried: set[str] = set()
    refusal: SpecWhisperError | None = None  # the last one, or the first loss
    async with AsyncExitStack() as stack:
        try:
            while True:
                try:
                    offer = offer or await find([address for address in (avoid, *tried) if address])
                except RETRY_OTHER_TARGET:
                    if isinstance(refusal, GONE):
                        raise refusal from None
                    raise
                if offer.address in tried and refusal is not None:
                    raise refusal
                tried.add(offer.address)
                try:
                    opened = await stack.enter_async_context(open_at(offer))
                    break
                except RETRY_OTHER_TARGET as error:
                    refusal = refusal if isinstance(refusal, GONE) else error
                    offer = None
        finally:
            refusal = None  # its traceback refers to this frame, and the cycle would keep it alive
        yield opened
