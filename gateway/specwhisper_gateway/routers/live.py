"""``/live``: the page's own WebSocket."""

from __future__ import annotations

from fastapi import APIRouter, Depends, WebSocket

from specwhisper_gateway.live.session import LiveSession
from specwhisper_gateway.state import gateway_of, place_of
from specwhisper_gateway.transport.deadline import within_time
from specwhisper_gateway.transport.sockets import Peer, check_origin, ended_by_errors, subprotocol_of

router = APIRouter()


@router.websocket("/live", dependencies=[Depends(place_of)])
async def live(socket: WebSocket) -> None:
    """Transcribe for the page."""
    check_origin(socket)
    await socket.accept(subprotocol_of(socket))
    peer = Peer(socket)
    session = LiveSession(gateway_of(socket), peer)
    async with ended_by_errors(socket, peer, session.tell_error), within_time(socket):
        await session.run()
        await peer.close()
