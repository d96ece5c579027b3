"""Silent connections are closed, with or without a token."""

import asyncio
from contextlib import suppress

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.rpc import calls, serving
from specwhisper.rpc.channels import Credentials, open_channel
from specwhisper.rpc.tokens import Tokens
from tests.rpc.hostile import hello, session, whole
from tests.rpc.services import recording, target_alone, target_server

TOKEN = "0123456789abcdef-Right"
TOKENS = Tokens({TOKEN: "anna"})
# The beginning of HTTP/2: its preface, and settings that change nothing.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
IDLE_S = 0.5
TIMEOUT_S = 20.0  # less than gRPC's keepalive pings take to find a lost peer


@pytest.mark.parametrize(
    ("limit", "sent"),
    [("HANDSHAKE_S", b""), ("IDLE_CONNECTION_S", GREETING)],
    ids=["silent", "without a call"],
)
async def test_a_connection_without_a_call_is_closed_and_a_session_is_not(limit, sent, monkeypatch):
    monkeypatch.setattr(serving, limit, IDLE_S)
    async with target_server() as target, session(target, hello()) as talking:
        await talking.read()
        host, port = target.address.split(":")
        ends = [await asyncio.open_connection(host, int(port)) for _ in range(16)]
        async with asyncio.timeout(TIMEOUT_S):
            for reader, writer in ends:
                writer.write(sent)
                while await reader.read(1024):
                    pass
                writer.close()
        # The session was silent for as long, and is still open.
        await talking.send(*whole(recording(1.0)))
        assert await talking.finish() == target_alone(1.0).window_tokens


async def closed_by_server(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()


async def test_a_connection_over_the_limit_is_closed_and_a_session_continues(monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 4)
    async with target_server() as target, session(target, hello()) as talking:
        await talking.read()
        host, port = target.address.split(":")

        async def greeted() -> tuple[bytes, asyncio.StreamWriter]:
            """Connect, and return the first bytes; none if the server closes."""
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(GREETING)
            try:
                return await reader.read(1024), writer
            except ConnectionResetError:
                return b"", writer

        async with asyncio.timeout(TIMEOUT_S):
            found = [await greeted() for _ in range(8)]
            assert len([said for said, _ in found if said]) == 3  # and that of the session
            is_let_in = False
            while not is_let_in:  # once the server has noticed that they are closed
                for _, writer in found:
                    await closed_by_server(writer)
                found = [await greeted()]
                is_let_in = bool(found[0][0])
            await closed_by_server(found[0][1])
        await talking.send(*whole(recording(1.0)))
        assert await talking.finish() == target_alone(1.0).window_tokens


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_health_can_be_checked_and_not_watched(token):
    async with (
        target_server(tokens=TOKENS) as target,
        open_channel(target.address, Credentials(token=token)) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health.Watch(health_pb2.HealthCheckRequest()).read()
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("method", "limit", "token"),
    [
        ("/grpc.health.v1.Health/Check", "GRPC_REQUEST_S", None),
        ("/grpc.health.v1.Health/Watch", "GRPC_REQUEST_S", None),
        ("/specwhisper.wire.v1.Verification/Locate", "REQUEST_S", TOKEN),
    ],
)
async def test_a_call_without_a_request_is_closed(method, limit, token, monkeypatch):
    assert calls.REQUEST_S * 1e6 / 8 > 32 * 2**20, "the largest recording in a message, at 1 Mbit/s"
    monkeypatch.setattr(calls, limit, IDLE_S)
    known = Credentials(token=token)
    async with target_server(tokens=TOKENS) as target, open_channel(target.address, known) as channel:
        silent = [channel.stream_stream(method)() for _ in range(16)]
        async with asyncio.timeout(TIMEOUT_S):
            for call in silent:
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await call.read()
                assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert "has sent no request for 0.5 s" in ended.value.details()
