"""gRPC's health service.

It reports whether a server, and its engine if it has one, serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
CHECK_WITHIN_S = 60.0  # more than any forward pass or encoding takes: a slow server must not be killed

CheckHealth = Callable[[], Awaitable[None]]  # returns if all is well; else raises, or hangs


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # grpc has no type hints
    """Answers ``Check``, and refuses ``Watch``.

    Health needs no token, and a watching call never ends: any client could hold calls and connections open.
    A client that receives UNIMPLEMENTED treats the server as healthy, by the protocol's own rule, and
    notices from its calls when the server stops.
    """

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Refuse the call."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Health is not watched here: ask Check.")

    async def serve(self, is_serving: bool) -> None:
        """Set the status of every service; after the server has stopped, none serves."""
        status = health_pb2.HealthCheckResponse
        for name in list(self._server_status):
            await self.set(name, status.SERVING if is_serving else status.NOT_SERVING)

    async def follow(self, check: CheckHealth) -> None:
        """Report the result of ``check`` until cancelled.

        A check that takes too long has failed.
        """
        is_well = True
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                async with asyncio.timeout(CHECK_WITHIN_S):
                    await check()
            except Exception as error:  # whatever it is
                if is_well:
                    logger.error("engine does not answer", extra={"error": repr(error)})
                is_well = False
            else:
                if not is_well:
                    logger.info("engine answers again")
                is_well = True
            await self.serve(is_well)
