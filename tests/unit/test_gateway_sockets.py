"""The other end of a WebSocket that does not listen, does not speak, or has gone."""

import asyncio

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from specwhisper.errors import MessageTooLarge, PairMismatch, ServerFull, TargetUnavailable
from specwhisper_gateway.errors import ClientGone, IdleTimeout, InvalidEvent
from specwhisper_gateway.transport import sockets
from specwhisper_gateway.transport.sockets import Peer, close_code, close_on_error, stall_timeout
from tests.rpc.services import eventually


class Socket:
    """A client that never does what it is waited for, or has gone."""

    def __init__(self, *, is_gone=False):
        self.scope = {"state": {}}
        self.is_gone = is_gone
        self.closed = None

    async def send_json(self, event):
        await self._hang()

    async def receive(self):
        await self._hang()

    async def close(self, code, reason):
        self.closed = (code, reason)
        await self._hang()

    async def _hang(self):
        if self.is_gone:
            raise WebSocketDisconnect(1006)
        await asyncio.Event().wait()


@pytest.mark.parametrize("is_gone", [False, True])
async def test_who_does_not_listen_has_left(is_gone):
    with pytest.raises(ClientGone):
        await Peer(Socket(is_gone=is_gone), send_timeout_s=0).send({})


async def test_whoever_notices_a_client_that_has_left_all_are_told_the_same():
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


class Listener(Socket):
    """A client that takes what it is told."""

    async def send_json(self, event):
        pass


async def test_who_does_not_speak_is_asked_to_come_again():
    with pytest.raises(IdleTimeout):
        await anext(Peer(Socket(), idle_timeout_s=0).frames())


async def test_who_is_told_something_need_not_speak():
    peer = Peer(Listener(), idle_timeout_s=600)
    waiting = asyncio.ensure_future(anext(peer.frames()))
    await eventually(lambda: peer._patience is not None)
    before_s = peer._patience.when()
    await peer.send({})
    assert peer._patience.when() > before_s
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_what_is_told_when_the_time_is_just_over_comes_too_late():
    peer = Peer(Listener())
    waiting = asyncio.ensure_future(anext(peer.frames()))
    await eventually(lambda: peer._patience is not None)
    peer._patience.reschedule(0)
    await asyncio.sleep(0)
    assert peer._patience.expired()
    await peer.send({})
    with pytest.raises(IdleTimeout):
        await waiting


async def test_nothing_waits_for_a_client_that_does_not_listen():
    async def tell(error):
        await peer.send({"error": str(error)})

    socket = Socket()
    peer = Peer(socket, send_timeout_s=0)
    async with close_on_error(socket, peer, tell):
        raise ServerFull("The draft server is full.")
    assert socket.closed == (1013, "rate_limit_exceeded")


async def test_a_draft_server_that_takes_nothing(monkeypatch):
    monkeypatch.setattr(sockets, "STALL_TIMEOUT_S", 0.0)
    with pytest.raises(TargetUnavailable):
        async with stall_timeout():
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidEvent("What?"), 1008),
        (MessageTooLarge("Too much."), 1009),
        (PairMismatch("No pair."), 1011),
        (ValueError("a bug"), 1011),
        (TargetUnavailable("Nobody there."), 1013),
    ],
)
def test_close_codes(error, code):
    assert close_code(error) == code
