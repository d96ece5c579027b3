"""TLS handshakes of a gateway count as connections and have a deadline."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from specwhisper.rpc import handshakes
from specwhisper.rpc.tls import ServerTls
from tests.rpc.gateway.test_gateway_bounds import connected, ends
from tests.rpc.gateways import RunningGateway, running_gateway
from tests.rpc.services import eventually

NOWHERE = "127.0.0.1:1"  # no draft server is called
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "roots.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "server.pem")
    return folder


@asynccontextmanager
async def encrypted_gateway(folder: Path, **settings) -> AsyncIterator[RunningGateway]:
    tls = ServerTls(folder / "server.pem", folder / "key.pem")
    async with running_gateway(NOWHERE, tls=tls, **settings) as gateway:
        yield gateway


async def answer(gateway: RunningGateway, folder: Path) -> bytes:
    """Return the answer to a request over TLS."""
    context = ssl.create_default_context(cafile=folder / "roots.pem")
    host, _, port = gateway.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
    try:
        writer.write(REQUEST)
        return await reader.readuntil(b"}")
    finally:
        writer.transport.abort()


async def test_a_handshake_has_a_deadline(folder, monkeypatch):
    monkeypatch.setattr(handshakes, "HANDSHAKE_S", 0.05)
    async with encrypted_gateway(folder) as gateway, connected(gateway) as (reader, _):
        assert await ends(reader) == b""
        await eventually(lambda: not gateway.server.server_state.connections)
        monkeypatch.undo()
        assert b"200 OK" in await answer(gateway, folder)


async def test_handshakes_count_as_connections(folder):
    async with encrypted_gateway(folder, max_connections=2) as gateway:
        async with connected(gateway), connected(gateway):
            await eventually(lambda: len(gateway.server.server_state.connections) == 2)
            async with connected(gateway) as (reader, _):
                assert await ends(reader) == b""
            with pytest.raises(OSError):
                await answer(gateway, folder)
        await eventually(lambda: not gateway.server.server_state.connections)
        assert b"200 OK" in await answer(gateway, folder)


async def test_an_invalid_handshake_ends_its_connection(folder, caplog):
    async with encrypted_gateway(folder) as gateway, connected(gateway) as (reader, writer):
        writer.write(REQUEST)
        await ends(reader)
        await eventually(lambda: not gateway.server.server_state.connections)
        assert b"200 OK" in await answer(gateway, folder)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_request_may_come_with_the_end_of_the_handshake(folder):
    context = ssl.create_default_context(cafile=folder / "roots.pem")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with encrypted_gateway(folder) as gateway, connected(gateway) as (reader, writer):
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65_536))
        client.write(REQUEST)
        writer.write(outgoing.read())  # the client's last message of the handshake, and the request
        answered = b""
        while b"}" not in answered:
            incoming.write(await reader.read(65_536))
            with suppress(ssl.SSLWantReadError):
                while True:  # head and body come in records of their own
                    answered += client.read(65_536)
    assert b"200 OK" in answered


async def test_a_stop_does_not_wait_for_handshakes(folder):
    async with encrypted_gateway(folder) as gateway:
        async with connected(gateway) as (reader, _):
            await eventually(lambda: gateway.server.server_state.connections)
            gateway.server.stop()
            assert await ends(reader) == b""
