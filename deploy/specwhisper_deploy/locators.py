"""Locators: one address at which draft servers find a target with room, or clients find draft servers.

The locator of targets returns a target's own address, at which the session opens. It asks targets over a
Serve handle, on which messages are bytes and refusals are values. The locator of draft servers lists them for
gateways and clients, full ones last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import (
    RETRY_OTHER_TARGET,
    InvalidRequest,
    PairMismatch,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.observe.current_call import caller
from specwhisper.tasks import retrieve_error
from specwhisper.wire.status import error_named
from specwhisper.wire.v1 import discovery_pb2, discovery_pb2_grpc, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_deploy import compat

DRAFTS_SERVICE = discovery_pb2.DESCRIPTOR.services_by_name["Discovery"].full_name
METHOD = "room"  # each replica's
FRESH_S = 1.0  # age at which draft servers are asked again
STALE_S = 10.0  # age at which a client waits for new answers

if TYPE_CHECKING:
    from specwhisper_target_server.service import VerificationService  # a locator needs no engine

TARGETS_SERVICE = pb.DESCRIPTOR.services_by_name["Verification"].full_name
ANSWER_TIMEOUT_S = 2.0  # for all replicas or attempts; callers wait longer, so they receive the error
MAX_ATTEMPTS = 3  # the next target is asked after a refusal, or a third of that time

Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error that a target returns instead of a message.

    Serve logs every exception that crosses a handle as a failure, with its traceback.
    """

    name: str  # its class in specwhisper.errors
    message: str


HandleReply = bytes | ErrorReply


async def locate_reply(
    service: VerificationService, address: str, request: bytes, caller: str
) -> HandleReply:
    """Answer a caller's ``Locate`` for a target at an address."""

    async def located() -> pb.LocateResponse:
        response = await service.locate(pb.LocateRequest.FromString(request), caller)
        response.address = address
        return response

    return await _reply_of(located())


async def describe_reply(service: VerificationService, request: bytes) -> HandleReply:
    """Answer ``Describe``, which is the same for every caller."""
    return await _reply_of(service.Describe(pb.DescribeRequest.FromString(request), None))


async def _reply_of(answer: Awaitable[Message]) -> HandleReply:
    try:
        return (await answer).SerializeToString()
    except SpecWhisperError as error:
        return ErrorReply(type(error).__name__, str(error))


def _parse_reply(reply: HandleReply, kind: type[Reply]) -> Reply:
    if isinstance(reply, ErrorReply):
        raise error_named(reply.name, reply.message) or SpecWhisperError(reply.message)
    return kind.FromString(reply)


class TargetLocatorService(verification_pb2_grpc.VerificationServicer):
    """Answers ``Locate`` and ``Describe`` for all targets, by one that their router picks; refuses sessions.

    ``timeout_s``: limit for all attempts together.
    """

    def __init__(self, targets: DeploymentHandle, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._targets = targets
        self._timeout_s = timeout_s

    async def Locate(self, request: pb.LocateRequest, context: Any) -> pb.LocateResponse:
        args = request.SerializeToString(), caller.get()
        return await self._call_with_retries(pb.LocateResponse, self._targets.locate, *args)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        """Describe the targets; all have one checkpoint, except during a rolling update."""
        args = request.SerializeToString()
        return await self._call_with_retries(pb.DescribeResponse, self._targets.describe, args)

    async def Verify(self, requests: Any, context: Any) -> None:
        raise InvalidRequest(
            "This address is a locator of targets: call Locate, and open the session at the address in its "
            "response."
        )

    async def Share(self, requests: Any, context: Any) -> None:
        await self.Verify(requests, context)

    async def _call_with_retries(self, kind: type[Reply], method: Any, *args: Any) -> Reply:
        """Call one target after another; a slow one may still answer during later attempts."""
        refusal: SpecWhisperError
        refusal = no_answer = TargetUnavailable(
            f"No target has answered the locator within {self._timeout_s:g} s; try again."
        )
        calls: list[asyncio.Task[Reply]] = []
        try:
            for _ in range(MAX_ATTEMPTS):
                calls.append(asyncio.create_task(self._call(kind, method, *args)))
                pending = [call for call in calls if not call.done()]
                done, _ = await asyncio.wait(
                    pending, timeout=self._timeout_s / MAX_ATTEMPTS, return_when=asyncio.FIRST_COMPLETED
                )
                for call in done:
                    try:
                        return call.result()
                    except RETRY_OTHER_TARGET as error:  # the router's statistics may be a second old
                        if refusal is no_answer or not isinstance(error, PairMismatch):
                            refusal = error
            raise refusal
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _call(self, kind: type[Reply], method: Any, *args: Any) -> Reply:
        response = method.remote(*args)
        try:
            return _parse_reply(await response, kind)
        except asyncio.CancelledError:
            response.cancel()
            raise
        except RayTaskError:  # a bug in the replica
            raise
        except (RayError, RayServeException) as error:  # the replica has died, or there is none
            name = type(error).__name__
            raise TargetUnavailable(f"No target answers the locator ({name}); try again.") from error


@dataclass(frozen=True, slots=True)
class DraftServerRoom:
    """A draft server's address for clients, and how many more sessions it can take."""

    address: str
    num_free: int


def shuffle_by_room(
    servers: Iterable[DraftServerRoom], uniform: Callable[[], float] = random.random
) -> list[DraftServerRoom]:
    """Return draft servers in the order in which a client should try them, full ones last.

    The order is random, weighted by room, so that many clients at once do not all begin with the emptiest.
    """

    def rank(server: DraftServerRoom) -> tuple[bool, float]:
        if server.num_free <= 0:
            return True, uniform()
        return False, -(uniform() ** (1 / server.num_free))  # sampling without replacement, by weights

    return sorted(servers, key=rank)


class DraftLocatorService(discovery_pb2_grpc.DiscoveryServicer):
    """Lists the draft servers that answered last.

    When a client asks and the last answers are old, the servers are asked again. The client waits for the new
    answers only if the last ones are stale.

    ``timeout_s``: limit for all answers together.
    """

    def __init__(
        self,
        replicas: DeploymentHandle,
        timeout_s: float = ANSWER_TIMEOUT_S,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._replicas = replicas
        self._timeout_s = timeout_s
        self._clock = clock
        self._servers: list[DraftServerRoom] = []
        self._updated_s = -inf
        self._update: asyncio.Task[None] | None = None

    async def ListServers(
        self, request: discovery_pb2.ListServersRequest, context: Any
    ) -> discovery_pb2.ListServersResponse:
        servers = shuffle_by_room(await self.servers())
        return discovery_pb2.ListServersResponse(addresses=[server.address for server in servers])

    async def servers(self) -> list[DraftServerRoom]:
        age_s = self._clock() - self._updated_s
        if age_s >= FRESH_S:
            if self._update is None or self._update.done():
                self._update = asyncio.create_task(self._refresh())
                self._update.add_done_callback(retrieve_error)
            if age_s >= STALE_S or not self._servers:
                await asyncio.shield(self._update)
        return self._servers

    async def _refresh(self) -> None:
        """Ask all replicas; leave out those that have died or don't answer in time."""
        try:
            answers = await compat.call_all_replicas(self._replicas, METHOD, self._timeout_s)
        except (TimeoutError, RayError, RayServeException):  # no replica runs
            answers = []
        servers = [answer for answer in answers if isinstance(answer, DraftServerRoom)]
        if not servers:
            raise TargetUnavailable(
                f"No draft server has answered the locator within {self._timeout_s:g} s; try again."
            )
        self._servers, self._updated_s = servers, self._clock()
