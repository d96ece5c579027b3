"""``/live``: the page's own WebSocket."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, WebSocket
from starlette.requests import HTTPConnection

from specwhisper_gateway.live.session import LiveConnection
from specwhisper_gateway.state import TakeSession, admit_later, gateway_of
from specwhisper_gateway.transport.deadline import within_time
from specwhisper_gateway.transport.sockets import Peer, check_origin, close_on_error, subprotocol_of

router = APIRouter()


async def check_page(connection: HTTPConnection) -> None:
    """Refuse pages of other sites, with keys too: they may use ``/v1/realtime``."""
    check_origin(connection)


@router.websocket("/live", dependencies=[Depends(check_page)])
async def live(socket: WebSocket, take_session: Annotated[TakeSession, Depends(admit_later)]) -> None:
    """Transcribe for the page."""
    await socket.accept(subprotocol_of(socket))
    peer = Peer(socket)
    session = LiveConnection(gateway_of(socket), peer, take_session)
    async with close_on_error(socket, peer, session.report_error), within_time(socket):
        await session.run()
        await peer.close()
