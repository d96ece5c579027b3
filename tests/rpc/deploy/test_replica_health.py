"""A replica is as healthy as its server, and waits for a port on which another drains."""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper.errors import InvalidRequest, PortTaken
from specwhisper.rpc.addresses import join_address
from specwhisper.rpc.serving import RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Tokens
from specwhisper_deploy.replicas import (
    DraftReplica,
    GatewayReplica,
    GrpcReplica,
    NotServing,
    TargetReplica,
    check_grpc,
    check_http,
    started,
)
from tests.certificates import save
from tests.rpc.gateways import running_gateway
from tests.rpc.scrapes import exported
from tests.rpc.services import eventually, running

TOKENS = Tokens({"0123456789abcdef": "anna"})
NO_SERVER = "127.0.0.1:1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """A certificate for a host name that no check uses."""
    folder = tmp_path_factory.mktemp("certificates")
    save(trustme.CA(), folder, "server", "targets.example")
    return folder


def protections(folder: Path) -> dict[str, ServerTls | None]:
    pair = (folder / "server.pem", folder / "server.key")
    return {"open": None, "encrypted": ServerTls(*pair), "mutual": ServerTls(*pair, folder / "roots.pem")}


def server_with(path: Path, tls: ServerTls | None = None) -> AbstractAsyncContextManager[RunningServer]:
    return running({}, ServingOptions(tls=tls, tokens=TOKENS, local_socket=path))


async def test_a_server_is_healthy_until_it_stops(certificates, tmp_path):
    path = tmp_path / "socket"
    async with server_with(path, protections(certificates)["mutual"]) as server:
        await check_grpc(server.address, path)
        address = server.address
    with pytest.raises(NotServing, match=address):
        await check_grpc(address, path)


async def test_a_server_that_does_not_answer_is_unhealthy(certificates, tmp_path):
    path = tmp_path / "mute"
    async with server_with(tmp_path / "socket") as server:
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(path))
            mute.listen()
            with pytest.raises(NotServing, match=r"within 0\.05 s"):
                await check_grpc(server.address, path, within_s=0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for tls in protections(certificates).values():
            with pytest.raises(NotServing, match=r"within 0\.05 s"):
                await check_http(join_address(*mute.getsockname()), tls, within_s=0.05)


@pytest.mark.parametrize("protection", ["open", "encrypted", "mutual"])
async def test_a_gateway_is_healthy_without_its_draft_servers(certificates, protection, caplog):
    caplog.set_level(logging.INFO)
    tls = protections(certificates)[protection]
    async with running_gateway(NO_SERVER, tls=tls, tokens=TOKENS) as gateway:
        await check_http(gateway.server.address, tls)
        address = gateway.server.address
        counted = exported(gateway.server.app.state.gateway.metrics.collected)
    # A handshake alone where a certificate is asked for; else a request that is neither counted nor logged.
    assert "specwhisper_gateway_requests_total{" not in counted
    assert "answered" not in caplog.messages
    with pytest.raises(NotServing, match=address):
        await check_http(address, tls)


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
        await made._server.health.enter_graceful_shutdown()
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


def test_a_gateway_answers_in_the_event_loop_of_ray():
    async def check() -> None:
        async with replica(GatewayReplica, server=NO_SERVER) as made:
            await made.check_health()

    uvloop.run(check())


WAITS = "waits for its port"
LONG_S = 600.0  # a drain timeout; nothing here takes as long
start = partial(start_server, {})


async def test_a_replica_starts_once_its_port_is_free(caplog):
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as predecessor:
        port = predecessor.getsockname()[1]
        starting = asyncio.create_task(started(start, [ServingOptions(port=port, drain_timeout_s=LONG_S)]))
        await eventually(lambda: WAITS in caplog.messages)
        assert not starting.done()
    server = await starting
    assert server.address == f"127.0.0.1:{port}"
    await server.stop(drain_timeout_s=0)


async def test_a_replica_waits_no_longer_than_the_drain_timeout(monkeypatch):
    monkeypatch.setattr("specwhisper_deploy.replicas.PORT_MARGIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = ServingOptions(port=other.getsockname()[1], drain_timeout_s=0.0)
        with pytest.raises(PortTaken, match="the port is taken"):
            await started(start, [options])


@pytest.mark.parametrize("fault", ["no such address", "no certificate"])
async def test_other_errors_are_raised_at_once(tmp_path, fault, caplog):
    caplog.set_level(logging.INFO)
    options = ServingOptions(
        host="192.0.2.1" if fault == "no such address" else "127.0.0.1",
        tls=save(trustme.CA(), tmp_path, "server"),
        insecure=True,
        drain_timeout_s=LONG_S,
    )
    if fault == "no certificate":  # after the flags were checked
        (tmp_path / "server.pem").unlink()
    with pytest.raises(InvalidRequest, match=r"Cannot listen on 192\.0\.2\.1|cannot be read") as refused:
        await started(start, [options])
    assert type(refused.value) is InvalidRequest
    assert WAITS not in caplog.messages


async def test_the_first_free_port_of_several_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        choices = [ServingOptions(port=other.getsockname()[1]), ServingOptions(port=0)]
        server = await started(start, choices)
        await server.stop(drain_timeout_s=0)
