"""What runs in Ray: the servers that run without it, started, watched and ended by Serve."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from ray.serve.handle import DeploymentHandle

from client.gateway.__main__ import read_config as read_gateway
from deploy.front import SERVICE_NAME, FrontService
from deploy.own_server import OwnServer, once_port_is_free, reachable
from deploy.routing import HAS_ROOM, OPEN_SESSIONS
from draft_server.__main__ import read_config as read_draft
from specwhisper.wire.command_lines import config_from
from specwhisper.wire.leases import Leases
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from target_server.__main__ import read_config as read_target

Flags = dict[str, str | int | float | bool | None]
FREE_PORT: Flags = {"port": 0}


class TargetReplica(OwnServer):
    """A target server; sessions come to its own address."""

    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from target_server.server import loaded_service, services_of

        super().__init__()
        config = config_from(read_target, FREE_PORT | flags)
        self._service = await self._running.enter_async_context(loaded_service(config, Leases()))
        service = self._service
        await self._listen(services_of(service), config.serving, service.say_goodbye, service.metrics)

    async def locate(self, request: bytes, caller: str) -> bytes:
        """Answer ``Locate`` for a caller whom the front knows."""
        place = await self._service.locate(pb.LocateRequest.FromString(request), caller)
        place.address = self.address
        return place.SerializeToString()

    async def describe(self, request: bytes, caller: str) -> bytes:
        """Answer ``Describe``."""
        description = await self._service.Describe(pb.DescribeRequest.FromString(request), None)
        return description.SerializeToString()

    async def check_health(self) -> None:
        """Raise, or hang, unless engine and server answer."""
        await self._service.check_health()
        await super().check_health()

    def record_routing_stats(self) -> dict[str, Any]:
        """Tell the router how full it is."""
        return {OPEN_SESSIONS: self._service.num_sessions, HAS_ROOM: self._service.has_room}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell the autoscaler the same, and how long answers take."""
        return {"open_sessions": float(self._service.num_sessions), "answer_ms": self._service.answer_ms}


class FrontReplica(OwnServer):
    """What draft servers are pointed to."""

    async def __init__(self, flags: Flags, targets: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        add = partial(add_VerificationServicer_to_server, FrontService(targets))
        await self._listen({SERVICE_NAME: add}, config_from(read_target, flags).serving)


class DraftReplica(OwnServer):
    """A draft server."""

    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from draft_server.server import loaded_service, services_of

        super().__init__()
        config = config_from(read_draft, flags)
        self._service = await self._running.enter_async_context(loaded_service(config))
        services = services_of(self._service, config)
        await self._listen(services, config.serving, metrics=self._service.metrics)

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell how many clients it has."""
        return {"open_sessions": float(self._service.num_sessions)}


class GatewayReplica:
    """A gateway."""

    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from client.gateway.server import GatewayServer

        config = config_from(read_gateway, flags)

        async def start() -> GatewayServer:
            return GatewayServer(config)

        self._server = await once_port_is_free(start, config.drain_timeout_s)
        self._serving = asyncio.create_task(self._server.serve())
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait({self._serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            ready.cancel()
            await self._serving
            raise RuntimeError("The gateway has ended before it was ready.")

    async def where(self) -> str:
        """Tell where it is reached."""
        return reachable(self._server.address)

    async def check_health(self) -> None:
        """Raise once it no longer serves."""
        if self._serving.done():
            raise RuntimeError("The gateway has ended.")

    async def __del__(self) -> None:
        """Let open requests end; Serve awaits it."""
        self._server.stop()
        await self._serving
