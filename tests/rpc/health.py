"""Wait until servers report a health status."""

import asyncio

from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.rpc.channels import open_channel

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
TIMEOUT_S = 20.0


async def until(address: str, wanted: int, service: str) -> None:
    """Wait until the server as a whole and its service have a status."""
    async with asyncio.timeout(TIMEOUT_S), open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", service):
            while (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status != wanted:
                await asyncio.sleep(0.01)
