"""A target whose engine hangs says "not serving", as the probes of containers ask, and takes it back."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.wire import health
from specwhisper.wire.channels import open_channel
from tests.rpc.gated import Gated
from tests.rpc.hostile import hello, session, whole
from tests.rpc.services import VERIFICATION, all_free, recording, target_alone, target_server

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
PATIENCE_S = 20.0


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(health, "CHECK_EVERY_S", 0.02)
    monkeypatch.setattr(health, "CHECK_WITHIN_S", 0.2)


async def until(address: str, wanted: int) -> None:
    """Ask until all services are said to be so."""
    async with asyncio.timeout(PATIENCE_S), open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", VERIFICATION):
            while (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status != wanted:
                pass


async def test_an_engine_that_hangs_and_goes_on(impatient, caplog):
    caplog.set_level("INFO")
    model = Gated()
    async with target_server(model, tells_engine_health=True) as target:
        await until(target.address, SERVING)
        async with session(target, hello(), *whole(recording(1.0))) as waiting:
            await until(target.address, NOT_SERVING)
            model.gate.set()
            await until(target.address, SERVING)
            assert await waiting.finish() == target_alone(1.0).window_tokens
        await all_free(target)
    assert {"engine does not answer", "engine answers again"} <= set(caplog.messages)


async def test_a_server_that_stops_does_not_come_back(impatient):
    async with target_server(tells_engine_health=True) as target:
        told = []

        async def on_drain() -> None:
            async with open_channel(target.address) as channel:
                for _ in range(50):  # many checks long
                    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                    told.append(reply.status)
                    await target.service.check_health()

        await target.server.stop(drain_timeout_s=PATIENCE_S, on_drain=on_drain)
        assert told == [NOT_SERVING] * 50
