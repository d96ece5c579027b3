"""A replica is as healthy as its server, a target replica as its engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper_deploy.grpc_replica import GrpcReplica
from specwhisper_deploy.health import NotServing
from specwhisper_deploy.replicas import DraftReplica, GatewayReplica, TargetReplica

NO_SERVER = "127.0.0.1:1"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_checkpoint(Shape(d_model=32, max_target_positions=100), tmp_path_factory.mktemp("model")))


@asynccontextmanager
async def replica(kind: type, **flags: Any) -> AsyncIterator[Any]:
    """Start and end a replica as Serve does, which awaits its destructor."""
    without = type(kind.__name__, (kind,), {"__del__": lambda _: None})
    made = without.__new__(without)
    await made.__init__({"port": 0} | flags)
    try:
        yield made
    finally:
        await kind.__del__(made)


@pytest.mark.parametrize("kind", [TargetReplica, DraftReplica])
async def test_a_replica_is_healthy_while_its_server_is(kind, model):
    flags = {"model": model} if kind is TargetReplica else {"target": NO_SERVER, "draft-model": model}
    async with replica(kind, **flags, threads=1) as made:
        await made.check_health()
        await made._server._health.enter_graceful_shutdown()
        with pytest.raises(NotServing, match="does not serve"):
            await made.check_health()


async def test_a_target_is_unhealthy_while_its_engine_hangs(model):
    gate = threading.Event()
    async with replica(TargetReplica, model=model, threads=1) as made:
        hanging = asyncio.create_task(made._service._thread.call(gate.wait))
        checking = asyncio.create_task(made.check_health())
        try:
            for _ in range(3):
                await GrpcReplica.check_health(made)  # the gRPC server itself answers
            assert not checking.done()
        finally:
            gate.set()
            await asyncio.gather(hanging, checking)


async def test_a_gateway_is_healthy_while_it_answers():
    async with replica(GatewayReplica, server=NO_SERVER) as made:
        await made.check_health()
        made._server.stop()
        ended = made._serving
        await ended
        with pytest.raises(NotServing, match="has ended"):
            await made.check_health()
        made._serving = asyncio.get_running_loop().create_future()  # as if it ran without answering
        try:
            with pytest.raises(NotServing, match=f"{made._server.address} does not answer"):
                await made.check_health()
        finally:
            made._serving = ended
