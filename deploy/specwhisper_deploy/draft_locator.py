"""The locator of draft servers: one address that lists those with room, for gateways and command lines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import TargetUnavailable
from specwhisper.wire.v1 import discovery_pb2 as pb
from specwhisper.wire.v1 import discovery_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Discovery"].full_name
PLACE = "place"  # the replicas' method
ANSWER_S = 2.0  # for all draft servers together; clients wait longer
FRESH_S = 1.0  # age from which draft servers are asked again
USED_S = 10.0  # age up to which their last answers are used meanwhile


@dataclass(frozen=True, slots=True)
class DraftPlace:
    """A draft server.

    Attributes
    ----------
    address : where clients reach it.
    num_free : sessions that it has room for.
    """

    address: str
    num_free: int


def by_room(places: Iterable[DraftPlace], uniform: Callable[[], float] = random.random) -> list[DraftPlace]:
    """Return draft servers in the order in which a client should try them.

    The order is random, weighted by room, so that many clients at once do not all begin with the emptiest
    one; full ones are last.
    """

    def rank(place: DraftPlace) -> tuple[bool, float]:
        if place.num_free <= 0:
            return True, uniform()
        return False, -(uniform() ** (1 / place.num_free))  # sampling without replacement, by weights

    return sorted(places, key=rank)


class Directory:
    """The draft servers that answer; asked when a client asks and their last answers are old.

    Parameters
    ----------
    ask : asks all draft servers; raises :class:`TargetUnavailable` where there is none.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[list[DraftPlace]]], *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._places: list[DraftPlace] = []
        self._asked_s = -inf
        self._asking: asyncio.Task[None] | None = None

    async def places(self) -> list[DraftPlace]:
        """Return the draft servers; wait for their answers only where the last ones are very old."""
        age_s = self._clock() - self._asked_s
        if age_s >= FRESH_S:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._refresh())
                self._asking.add_done_callback(_retrieve)
            if age_s >= USED_S or not self._places:
                await asyncio.shield(self._asking)
        return self._places

    async def _refresh(self) -> None:
        places = await self._ask()
        self._places, self._asked_s = places, self._clock()


class DraftLocatorService(discovery_pb2_grpc.DiscoveryServicer):
    """Lists draft servers."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def ListServers(self, request: pb.ListServersRequest, context: Any) -> pb.ListServersResponse:
        """Return where each draft server is reached, in the order in which to try them."""
        places = await self._directory.places()
        return pb.ListServersResponse(addresses=[place.address for place in by_room(places)])


def asking(drafts: DeploymentHandle, within_s: float = ANSWER_S) -> Callable[[], Awaitable[list[DraftPlace]]]:
    """Return what asks all replicas; those that have died or do not answer in time are left out."""

    async def ask() -> list[DraftPlace]:
        questions: list[asyncio.Future[Any]] = []
        try:
            async with asyncio.timeout(within_s):
                asked = drafts.broadcast(PLACE)
                # Its public results_async has no answers at all where one replica hangs.
                replicas = await asked._fetch_replica_results_async()
                questions = [asyncio.ensure_future(replica.get_async()) for replica in replicas]
                await asyncio.wait(questions)
        except (TimeoutError, RayError, RayServeException):
            pass
        finally:
            for question in questions:
                question.cancel()
            answers = await asyncio.gather(*questions, return_exceptions=True)
        places = [answer for answer in answers if isinstance(answer, DraftPlace)]
        if not places:
            raise TargetUnavailable(
                f"No draft server has answered the locator within {within_s:g} s; try again."
            )
        return places

    return ask


def _retrieve(task: asyncio.Task[None]) -> None:
    """Take a failure for which no client waits; the next one asks again."""
    if not task.cancelled():
        task.exception()
