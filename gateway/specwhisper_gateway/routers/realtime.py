"""``/v1/realtime``: live transcription as OpenAI's realtime API has it."""

from __future__ import annotations

from fastapi import APIRouter, Depends, WebSocket

from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.realtime.session import RealtimeConnection
from specwhisper_gateway.realtime.settings import RealtimeSettings
from specwhisper_gateway.routers.models import WHISPER_1, check_model
from specwhisper_gateway.state import gateway_of, place_of
from specwhisper_gateway.transport.deadline import within_time
from specwhisper_gateway.transport.sockets import Peer, check_origin, ended_by_errors, subprotocol_of

router = APIRouter(prefix="/v1/realtime")
BETA_HEADER, BETA_SUBPROTOCOL = "realtime=v1", "openai-beta.realtime-v1"


@router.websocket("", dependencies=[Depends(place_of)])
async def realtime(socket: WebSocket) -> None:
    """Transcribe while somebody speaks; what is wrong with the request itself has an HTTP status."""
    gateway = gateway_of(socket)
    if gateway.config.tokens is None:
        check_origin(socket)
    if socket.query_params.get("intent") != "transcription":
        raise InvalidField(
            "Only transcription sessions are offered: connect with ?intent=transcription.", "intent"
        )
    model = socket.query_params.get("model") or WHISPER_1
    await check_model(gateway, model)
    await gateway.client.get_model()  # refuses here where nobody would write anything
    await socket.accept(subprotocol_of(socket))
    peer = Peer(socket)
    is_beta = BETA_HEADER in socket.headers.get("openai-beta", "") or (
        BETA_SUBPROTOCOL in socket.scope["subprotocols"]
    )
    session = RealtimeConnection(gateway, peer, RealtimeSettings(model=model), is_beta=is_beta)
    async with ended_by_errors(socket, peer, session.tell_error), within_time(socket):
        await session.run()
