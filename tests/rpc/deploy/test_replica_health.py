"""Health checks of a replica's server, with a time limit, for all kinds of TLS."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from specwhisper.rpc.addresses import join_address
from specwhisper.rpc.serving import RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Tokens
from specwhisper_deploy.health import NotServing, check_grpc, check_http
from tests.rpc.gateways import running_gateway
from tests.rpc.scrapes import exported

TOKENS = Tokens({"0123456789abcdef": "anna"})
NO_SERVER = "127.0.0.1:1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """A certificate for a host name that no check uses."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "roots.pem")
    issued = authority.issue_cert("targets.example")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return folder


def protections(folder: Path) -> dict[str, ServerTls | None]:
    pair = (folder / "cert.pem", folder / "key.pem")
    return {"open": None, "encrypted": ServerTls(*pair), "mutual": ServerTls(*pair, folder / "roots.pem")}


@asynccontextmanager
async def server_with(path: Path, tls: ServerTls | None = None) -> AsyncIterator[RunningServer]:
    server = await start_server({}, ServingOptions(tls=tls, tokens=TOKENS, local_socket=path))
    try:
        yield server
    finally:
        await server.stop(drain_timeout_s=0)


@pytest.mark.parametrize("protection", ["open", "encrypted", "mutual"])
async def test_a_server_is_healthy_until_it_stops(certificates, tmp_path, protection):
    path = tmp_path / "socket"
    async with server_with(path, protections(certificates)[protection]) as server:
        await check_grpc(server.address, path)
        address = server.address
    with pytest.raises(NotServing, match=address):
        await check_grpc(address, path)


async def test_a_draining_server_is_unhealthy(tmp_path):
    path = tmp_path / "socket"
    async with server_with(path) as server:
        await server._health.enter_graceful_shutdown()
        with pytest.raises(NotServing, match="does not serve"):
            await check_grpc(server.address, path)


async def test_a_server_that_does_not_answer_is_unhealthy(tmp_path):
    path = tmp_path / "mute"
    async with server_with(tmp_path / "socket") as server:
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(path))
            mute.listen()
            with pytest.raises(NotServing, match=r"within 0\.05 s"):
                await check_grpc(server.address, path, within_s=0.05)


@pytest.mark.parametrize("protection", ["open", "encrypted", "mutual"])
async def test_a_gateway_is_healthy_without_its_draft_servers(certificates, protection, caplog):
    caplog.set_level(logging.INFO)
    tls = protections(certificates)[protection]
    async with running_gateway(NO_SERVER, tls=tls, tokens=TOKENS) as gateway:
        await check_http(gateway.server.address, tls)
        address = gateway.server.address
        counted = exported(gateway.server._metrics.collected)
    # A handshake alone where a certificate is asked for; else a request that is neither counted nor logged.
    assert "specwhisper_gateway_requests_total{" not in counted
    assert "answered" not in caplog.messages
    with pytest.raises(NotServing, match=address):
        await check_http(address, tls)


@pytest.mark.parametrize("protection", ["open", "encrypted", "mutual"])
async def test_a_gateway_that_does_not_answer_is_unhealthy(certificates, protection):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = join_address(*mute.getsockname())
        with pytest.raises(NotServing, match=r"within 0\.05 s"):
            await check_http(address, protections(certificates)[protection], within_s=0.05)
