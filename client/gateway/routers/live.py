"""``/live``: the page's own WebSocket."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from client.gateway.live.session import LiveSession
from client.gateway.sockets import Peer, check_origin, check_socket_key, ended_by_errors
from client.gateway.state import gateway_of

router = APIRouter()


@router.websocket("/live")
async def live(socket: WebSocket) -> None:
    """Transcribe for the page."""
    subprotocol = check_socket_key(socket)
    check_origin(socket)
    await socket.accept(subprotocol)
    peer = Peer(socket)
    session = LiveSession(gateway_of(socket), peer)
    async with ended_by_errors(socket, peer, session.tell_error):
        await session.run()
        await peer.close()
