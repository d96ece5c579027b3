"""The locator of draft servers: one address that lists them for gateways and clients, full ones last."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import TargetUnavailable
from specwhisper.tasks import retrieve_error
from specwhisper.wire.v1 import discovery_pb2 as pb
from specwhisper.wire.v1 import discovery_pb2_grpc
from specwhisper_deploy import compat

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Discovery"].full_name
METHOD = "room"  # each replica's
ANSWER_TIMEOUT_S = 2.0  # for all draft servers together; clients wait longer
FRESH_S = 1.0  # age at which draft servers are asked again
STALE_S = 10.0  # age at which a client waits for new answers


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

    Parameters
    ----------
    replicas : the deployment.
    timeout_s : limit for all answers together.
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

    async def ListServers(self, request: pb.ListServersRequest, context: Any) -> pb.ListServersResponse:
        servers = shuffle_by_room(await self.servers())
        return pb.ListServersResponse(addresses=[server.address for server in servers])

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
        except (RayError, RayServeException):  # there are no replicas
            answers = []
        servers = [answer for answer in answers if isinstance(answer, DraftServerRoom)]
        if not servers:
            raise TargetUnavailable(
                f"No draft server has answered the locator within {self._timeout_s:g} s; try again."
            )
        self._servers, self._updated_s = servers, self._clock()
