"""``/v1/realtime``: live transcription with OpenAI's realtime API."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, WebSocket

from specwhisper.rpc.tokens import SCHEME
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.realtime import riva
from specwhisper_gateway.realtime.session import RealtimeConnection
from specwhisper_gateway.realtime.settings import RealtimeSettings
from specwhisper_gateway.state import TakeSession, admit_later, gateway_of
from specwhisper_gateway.transport.access import authorization
from specwhisper_gateway.transport.deadline import within_time
from specwhisper_gateway.transport.sockets import (
    RIVA_SUBPROTOCOL,
    Peer,
    check_origin_without_keys,
    close_on_error,
    subprotocol_of,
)

router = APIRouter(prefix="/v1/realtime")
RIVA_DEFAULTS = {"input_audio_params": {"sample_rate_hz": riva.SAMPLE_RATE, "num_channels": 1}}
BETA_HEADER, BETA_SUBPROTOCOL = "realtime=v1", "openai-beta.realtime-v1"


@router.websocket("", dependencies=[Depends(check_origin_without_keys)])
async def realtime(socket: WebSocket, take_session: Annotated[TakeSession, Depends(admit_later)]) -> None:
    """Transcribe live audio; an invalid request is answered with an event."""
    gateway = gateway_of(socket)
    if socket.query_params.get("intent", "transcription") != "transcription":
        raise InvalidField(
            "Only transcription sessions are offered: connect with ?intent=transcription.", "intent"
        )
    model = await gateway.model_names.resolve(socket.query_params.get("model", ""))
    await gateway.client.get_model()  # fails here if no target answers
    await socket.accept(subprotocol_of(socket))
    peer = Peer(socket)
    is_beta = BETA_HEADER in socket.headers.get("openai-beta", "") or (
        BETA_SUBPROTOCOL in socket.scope["subprotocols"]
    )
    is_riva = any(name.startswith(RIVA_SUBPROTOCOL) for name in socket.scope["subprotocols"])
    secret = gateway.secrets.find((authorization(socket) or "")[len(SCHEME) :].strip())
    settings = RealtimeSettings() if secret is None else secret.settings
    if not settings.model or "model" in socket.query_params:
        settings = settings.with_model(model)
    if is_riva:
        settings = riva.updated(settings, RIVA_DEFAULTS)
    session = RealtimeConnection(gateway, peer, settings, take_session, is_beta=is_beta, is_riva=is_riva)
    async with close_on_error(socket, peer, session.report_error), within_time(socket):
        await session.run()
