"""Clients that do not send, send slowly, or have disconnected."""

import asyncio

import pytest
from starlette.websockets import WebSocket, WebSocketState

from specwhisper.errors import ServerFull
from specwhisper_gateway.audio import uploads
from specwhisper_gateway.audio.uploads import IDLE_TIMEOUT_S, MIN_BYTES_PER_S
from specwhisper_gateway.errors import ClientGone, IdleTimeout
from specwhisper_gateway.sockets import Peer, refuse_socket
from tests.rpc.services import eventually


class Listener:
    """A client that reads, and sends nothing."""

    async def send_json(self, event):
        pass

    async def receive(self):
        await asyncio.Event().wait()


async def test_every_send_to_a_client_that_is_gone_raises_the_same_error():
    async def send(message):
        raise BrokenPipeError

    async def receive():
        return {"type": "websocket.connect"}

    socket = WebSocket({"type": "websocket"}, receive, send)
    socket.application_state = WebSocketState.CONNECTED
    peer = Peer(socket)
    for _ in range(2):
        with pytest.raises(ClientGone):
            await peer.send({})


async def test_a_sent_event_restarts_the_idle_timeout_until_it_has_expired():
    peer = Peer(Listener())
    waiting = asyncio.ensure_future(anext(peer.frames()))
    await eventually(lambda: peer._idle is not None)
    before_s = peer._idle.when()
    await peer.send({})
    assert peer._idle.when() > before_s
    peer._idle.reschedule(0)
    await asyncio.sleep(0)
    assert peer._idle.expired()
    await peer.send({})
    with pytest.raises(IdleTimeout):
        await waiting


@pytest.mark.parametrize("num_sent", [0, 1])
async def test_a_client_that_leaves_while_it_is_refused(num_sent):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        if len(sent) == num_sent:
            raise OSError
        sent.append(message["type"])

    scope = {"type": "websocket", "headers": [], "subprotocols": []}
    await refuse_socket(ServerFull("The gateway is full."), scope, receive, send)
    assert sent == ["websocket.accept"][:num_sent]


async def test_an_upload_has_a_least_rate(monkeypatch):
    now_s, num_bytes = 0.0, MIN_BYTES_PER_S

    async def receive():
        nonlocal now_s
        now_s += 1.0
        await asyncio.sleep(0)
        return {"body": bytes(num_bytes)}

    monkeypatch.setattr(uploads, "monotonic", lambda: now_s)
    limited = uploads.limited(receive, 10**9, "")
    for _ in range(1_000):
        await limited()
    num_bytes = MIN_BYTES_PER_S // 2
    for _ in range(round(2 * IDLE_TIMEOUT_S)):
        await limited()
    with pytest.raises(IdleTimeout, match="over a faster network"):
        await limited()
