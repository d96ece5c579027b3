"""The health that a server tells: whether it serves, which is also its engine's word where it has one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
CHECK_WITHIN_S = 60.0  # more than any pass or encoding takes: a server that is only slow is not to be killed

CheckHealth = Callable[[], Awaitable[None]]  # returns where all is well; raises, or hangs, where it is not


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # grpc has no type hints
    """Answers ``Check``; ``Watch`` it does not offer.

    Health is the one service that asks for no token, and a watcher stays for as long as it likes: anybody
    could hold calls and connections open. Clients that hear UNIMPLEMENTED take the server for healthy, by
    the protocol's own rule, and learn from calls that it stops.
    """

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Refuse."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Health is not watched here: ask Check.")

    async def serve(self, is_serving: bool) -> None:
        """Say of every service whether it serves; once the server stops, none does."""
        status = health_pb2.HealthCheckResponse
        for name in list(self._server_status):
            await self.set(name, status.SERVING if is_serving else status.NOT_SERVING)

    async def follow(self, check: CheckHealth) -> None:
        """Say until cancelled what ``check`` says; what takes too long is not well until it is done."""
        is_well = True
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                async with asyncio.timeout(CHECK_WITHIN_S):
                    await check()
            except Exception as error:  # whatever it is, it does not serve
                if is_well:
                    logger.error("engine does not answer", extra={"error": repr(error)})
                is_well = False
            else:
                if not is_well:
                    logger.info("engine answers again")
                is_well = True
            await self.serve(is_well)
