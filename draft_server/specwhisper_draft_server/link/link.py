"""The link to targets: their descriptions, free slots, and sessions on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from copy import copy
from functools import partial
from typing import TypeVar

import grpc.aio
from grpc import ChannelConnectivity

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
from specwhisper.wire.status import refused_handshake
from specwhisper.wire.v1 import decoding_pb2, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.link.candidate_channel import CandidateChannel, error_of_target
from specwhisper_draft_server.link.grpc_target_stream import GrpcTargetStream
from specwhisper_draft_server.link.targets import TargetOffer, Targets
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.transcriber import ANY, Requirements, TargetDescription, TargetStream

REASON_S = 1.0  # to find out why a connection failed, which gRPC knows once it has tried
UNKNOWN_S = 0.25  # expected answer time of a target that hasn't answered yet
MAX_DESCRIPTIONS = 8  # to keep, each for other weights

Opened = TypeVar("Opened")
Find = Callable[[Collection[str]], Awaitable[TargetOffer]]
# gRPC's limit for an attempt to connect, which takes two round trips, or four with TLS.
ATTEMPT_S = 20.0
# Time limit of a unary call, including an attempt to connect.
ANSWER_S = 30.0


class Channels:
    """One channel for each address, kept while it is used or worth keeping.

    Parameters
    ----------
    credentials : encryption and token for targets.
    is_worth_keeping : whether an unused address may be asked again.
    """

    def __init__(self, credentials: Credentials, is_worth_keeping: Callable[[str], bool]) -> None:
        self._credentials = credentials
        self._is_worth_keeping = is_worth_keeping
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._windows: dict[str, SendWindow] = {}
        self._candidates: dict[str, CandidateChannel] = {}
        self._num_users: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        return list(self._channels)

    def is_connected(self, address: str) -> bool:
        channel = self._channels.get(address)
        return channel is not None and channel.get_state() is ChannelConnectivity.READY

    def window(self, address: str) -> SendWindow:
        return self._windows[address]

    def candidates(self, address: str, stub: verification_pb2_grpc.VerificationStub) -> CandidateChannel:
        call = self._candidates.get(address)
        if call is None or call.is_over:
            call = self._candidates[address] = CandidateChannel(address, stub)
        return call

    @asynccontextmanager
    async def using(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._credentials)
            self._windows[address] = SendWindow()
        self._num_users[address] += 1
        try:
            yield self._channels[address]
        finally:
            self._num_users[address] -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        self._num_users = +self._num_users
        for address in self.addresses:
            if not (self._num_users[address] or self._is_worth_keeping(address)):
                self._candidates.pop(address, None)
                if (channel := self._channels.pop(address, None)) is not None:  # else another task closes it
                    await channel.close()

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


async def wait_connected(channel: grpc.aio.Channel, address: str, refused_s: float) -> None:
    """Wait until a channel to a target is connected.

    A host without a target refuses every attempt at once, so this fails after ``refused_s`` seconds. An
    attempt in progress gets the time that gRPC allows, since the target may just be far away.

    Raise :class:`TargetUnavailable` if it is not connected in time.
    """
    clock = asyncio.get_running_loop().time
    begun_s = clock()
    while (state := channel.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
        has_failed = state is ChannelConnectivity.TRANSIENT_FAILURE
        within_s = refused_s if has_failed else max(refused_s, ATTEMPT_S)
        try:
            async with asyncio.timeout(max(0.0, begun_s + within_s - clock())):
                await channel.wait_for_state_change(state)
        except TimeoutError:
            raise TargetUnavailable(
                f"No target server answered at {address} within {within_s:g} s; is it running?"
            ) from None


class TargetLink:
    """A :class:`Transcriber` over gRPC.

    It finds targets with free slots, and opens sessions on them.

    Parameters
    ----------
    addresses : targets, or locators that answer ``Locate`` for many.
    credentials : encryption and token for targets.
    connect_timeout_s : time in seconds in which a target may refuse connections; an attempt in progress has
        more (:func:`wait_connected`).
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
        self._channels = Channels(credentials, self._targets.knows)
        self._connect_timeout_s = connect_timeout_s
        self._by_weights: dict[str, TargetDescription] = {}  # the newest last
        # Descriptions from configured servers whose connections are still open. A target doesn't change while
        # it runs, and its successor has other connections.
        self._described: dict[str, TargetDescription] = {}
        self._needs_no_lease: set[str] = set()  # servers that open sessions without a lease
        self._offer: TargetOffer | None = None  # for the one session that this link opens

    async def check_health(self) -> None:
        """Return at once: targets report their own health."""

    async def close(self) -> None:
        await self._channels.close()

    def known(self, requirements: Requirements = ANY) -> TargetDescription | None:
        """Return the description of a target whose connection is still up, if any."""
        for address in self._targets.configured:
            target = self._described.get(address)
            if (
                target is not None
                and requirements.are_met_by(target)
                and self._channels.is_connected(address)
            ):
                return target
        return None

    async def describe(self, requirements: Requirements = ANY) -> TargetDescription:
        """Return the description of a target.

        Its vocabulary is sent only if it has changed.
        """
        known = self._by_weights.get(requirements.weights_digest)
        if known is not None and requirements.are_met_by(known):
            return known
        mismatched: list[str] = []

        async def ask(address: str) -> TargetDescription:
            try:
                return await self._describe(address, requirements)
            except PairMismatch:
                mismatched.append(address)
                raise

        try:
            return await self._targets.first(ask)
        except (PairMismatch, TargetUnavailable):  # TargetUnavailable if some mismatch and others are down
            if requirements == ANY or not mismatched:
                raise
        offer = await self._find(requirements)  # a locator describes one target, but may name others
        return await self._describe(offer.address, requirements)

    async def _describe(self, address: str, requirements: Requirements) -> TargetDescription:
        held = next((each.vocabulary for each in reversed(self._by_weights.values())), None)
        request = pb.DescribeRequest(vocabulary_digest=held.digest if held else "")
        async with self._asking(address) as stub:
            try:  # the target may be starting
                async with self._channels.using(address) as channel:
                    await wait_connected(channel, address, self._connect_timeout_s)
            except TargetUnavailable as error:
                if (reason := await self._handshake_failure(stub, address)) is None:
                    raise
                raise TargetUnavailable(reason) from error
            reply = await stub.Describe(request, timeout=ANSWER_S)
        check_protocol(
            f"Target {address}",
            reply.protocol_version,
            reply.software_version,
            here="this draft server",
            own=PROTOCOL_VERSION,
        )
        if held is None or reply.HasField("vocabulary"):
            held = codec.vocabulary_from_proto(reply.vocabulary)
        target = TargetDescription(
            model=reply.model,
            weights_digest=reply.weights_digest,
            vocabulary=held,
            num_mel_bins=reply.num_mel_bins,
            limits=codec.limits_from_proto(reply.limits),
        )
        self._note(address, target)
        self._by_weights.pop(target.weights_digest, None)
        self._by_weights[target.weights_digest] = target
        while len(self._by_weights) > MAX_DESCRIPTIONS:
            del self._by_weights[next(iter(self._by_weights))]
        requirements.check(address, target)
        return target

    def _note(self, address: str, target: TargetDescription) -> None:
        if address in self._targets.configured:
            self._described[address] = target

    def _forget(self, address: str) -> None:
        self._described.pop(address, None)
        self._needs_no_lease.discard(address)

    async def _handshake_failure(
        self, stub: verification_pb2_grpc.VerificationStub, address: str
    ) -> str | None:
        """Return why a handshake failed, which a call reports but a channel doesn't."""
        try:
            await stub.Describe(pb.DescribeRequest(), timeout=REASON_S)
        except grpc.aio.AioRpcError as error:
            return refused_handshake(error.details() or "", address)
        return None

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
        async with self._asking(address) as stub:
            reply = await stub.Locate(request, timeout=ANSWER_S)
        if address in self._targets.configured and not (reply.address or reply.lease):
            self._needs_no_lease.add(address)
        else:
            self._needs_no_lease.discard(address)
        offer = TargetOffer(reply.address or address, reply.lease, reply.free_slots, reply.is_standby)
        if within_s is not None:
            if offer.address in request.avoid or (reply.answer_s or UNKNOWN_S) > within_s:
                raise ServerFull(f"Target {offer.address} is not much faster than the session's own.")
        return offer

    async def find_room(
        self,
        target: TargetDescription | None = None,
        *,
        same_weights: bool = False,
    ) -> TargetLink:
        """Return a copy of this link that opens one session, where a slot is free.

        It asks for the slot now.
        """
        link = copy(self)
        requirements = Requirements.of(target, same_weights=same_weights)
        link._offer = await self._find(requirements, [])
        return link

    def _only_target(self, avoid: str) -> TargetOffer | None:
        """Return the only target if it is connected and needs no lease."""
        address, *others = self._targets.configured
        if others or address == avoid or address not in self._needs_no_lease:
            return None
        return TargetOffer(address) if self._channels.is_connected(address) else None

    @asynccontextmanager
    async def _asking(self, address: str) -> AsyncIterator[verification_pb2_grpc.VerificationStub]:
        """Yield a target's stub; convert its calls' errors to ours, and note a lost target."""
        try:
            if not self._channels.is_connected(address):
                self._forget(address)
            async with self._channels.using(address) as channel:
                try:
                    yield verification_pb2_grpc.VerificationStub(channel)
                except grpc.aio.AioRpcError as error:
                    raise error_of_target(error, address) from error
        except PairMismatch:
            self._forget(address)
            raise
        except GONE:
            self._forget(address)
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
        within_s: float | None = None,
    ) -> AsyncIterator[TargetStream]:
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
        opened = opened_at_one(
            partial(self._find, requirements, within_s=within_s),
            partial(self._open_at, hello=hello, target=target, requirements=requirements),
            avoid=avoid,
            offer=self._offer or self._only_target(avoid),
        )
        async with opened as session:
            yield session

    @asynccontextmanager
    async def _open_at(
        self, offer: TargetOffer, hello: pb.Hello, target: TargetDescription, requirements: Requirements
    ) -> AsyncIterator[GrpcTargetStream]:
        own_hello = pb.Hello(lease=offer.lease, weights_digest=requirements.weights_digest)
        own_hello.MergeFrom(hello)
        async with self._asking(offer.address) as stub:
            session = GrpcTargetStream(
                offer.address,
                stub,
                self._channels.candidates(offer.address, stub),
                own_hello,
                target,
                window=self._channels.window(offer.address),
                note_gone=partial(self._targets.note_gone, offer.address),
                metrics=self._metrics,
            )
            try:
                with self._targets.opening(offer.address):
                    welcome = await session.welcome()
                session.limits = codec.limits_from_proto(welcome.limits)
                weights = welcome.weights_digest
                session.target = await self._description(offer.address, weights, target, hello.decoding)
                yield session
            finally:
                session.close()

    async def _description(
        self,
        address: str,
        weights: str,
        expected: TargetDescription,
        options: decoding_pb2.DecodingOptions,
    ) -> TargetDescription:
        is_expected = weights == expected.weights_digest
        described = expected if is_expected else self._by_weights.get(weights)
        if described is None:
            described = await self._describe(address, Requirements(expected.vocabulary.digest, weights))
        # A target computes features itself, but cannot know the maximum of a recording that is arriving.
        bins, maxima = described.num_mel_bins, options.log_mel_max
        if maxima and bins not in maxima:
            raise PairMismatch(
                f"Target {address} ('{described.model}') has {bins} mel bins; the recording's log_mel_max is "
                f"of {', '.join(map(str, sorted(maxima)))} bins: send it for all that `GetModel` names."
            )
        if is_expected:
            return expected
        self._note(address, described)
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
                offer = offer or await _next_offer(find, avoid, tried, refusal)
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


async def _next_offer(
    find: Find, avoid: str, tried: Collection[str], refusal: SpecWhisperError | None
) -> TargetOffer:
    try:
        offer = await find([address for address in (avoid, *tried) if address])
    except RETRY_OTHER_TARGET:
        if isinstance(refusal, GONE):
            raise refusal from None
        raise
    else:
        if refusal is not None and offer.address in tried:
            raise refusal
        return offer
    finally:
        refusal = None
