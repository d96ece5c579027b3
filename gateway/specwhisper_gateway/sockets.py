"""WebSockets: origins, refusals, close codes, clients that do not send."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.rpc.addresses import is_loopback
from specwhisper_gateway.access_log import note_error
from specwhisper_gateway.errors import ClientGone, ForeignPage, IdleTimeout, answer_to, body_of
from specwhisper_gateway.messages import event
from specwhisper_gateway.state import gateway_of, within_time

logger = logging.getLogger(__name__)

STALL_TIMEOUT_S = 120.0  # for a draft server that takes no more audio
IDLE_TIMEOUT_S = 600.0  # without a message in either direction; the session takes one of the draft server's

RIVA_SUBPROTOCOL = "realtime-token."  # carries the client secret of Riva's client
KEY_SUBPROTOCOLS = (
    "openai-insecure-api-key.",  # carries a browser's key, since its WebSockets cannot set headers
    RIVA_SUBPROTOCOL,
)


def subprotocol_of(socket: WebSocket) -> str | None:
    """Choose one of the subprotocols that a client offers.

    Browsers disconnect unless one is chosen.
    """
    offered: list[str] = socket.scope["subprotocols"]
    # Never send a key back.
    return next((name for name in offered if not name.startswith(KEY_SUBPROTOCOLS)), None)


async def check_origin(connection: HTTPConnection) -> None:
    """Refuse pages of other sites, which browsers let connect to private hosts."""
    origin = connection.headers.get("origin")
    config = gateway_of(connection).config
    if origin is None or config.allows(origin):  # browsers always send one
        return
    try:
        page = urlsplit(origin)
    except ValueError:  # an invalid address in brackets
        page = urlsplit("")
    is_own = bool(page.netloc) and page.netloc == connection.headers.get("host")
    if config.tokens is None and is_loopback(config.host):
        # Any other name may be made to resolve to this machine after its page was loaded (DNS rebinding).
        is_own = is_own and is_loopback(page.hostname or "")
    if not is_own:
        raise ForeignPage(
            f"Pages of {origin} may not use this gateway: use its own page, or pass --allow-origin."
        )


async def check_origin_without_keys(connection: HTTPConnection) -> None:
    """Refuse pages of other sites if there are no keys.

    Browsers send their forms, and open WebSockets, without asking.
    """
    if gateway_of(connection).config.tokens is None:
        await check_origin(connection)


async def refuse_socket(error: SpecWhisperError, scope: Scope, receive: Receive, send: Send) -> None:
    """Accept a WebSocket to send it an error, and close it.

    Of a refused handshake most clients show no more than its status, and browsers nothing. An accepted socket
    costs no more than a connection that sends nothing: it takes no session, its messages are discarded, it
    counts towards ``--max-connections``, and it is cut after some seconds if the client does not close it.
    """
    socket = WebSocket(scope, receive, send)
    with suppress(WebSocketDisconnect, ClientGone, OSError):  # it has left
        await socket.accept(subprotocol_of(socket))
        peer = Peer(socket)
        await peer.report(error)
        await peer.close(error)


@asynccontextmanager
async def accepted(socket: WebSocket) -> AsyncGenerator[Peer]:
    """Accept a WebSocket; report an error of the session to its client, and close it."""
    await socket.accept(subprotocol_of(socket))
    peer = Peer(socket)
    try:
        async with within_time(socket):
            yield peer
    except Exception as error:
        note_error(socket.scope, error)
        if not isinstance(error, SpecWhisperError):
            logger.exception("session failed")
        if not isinstance(error, ClientGone):
            with suppress(ClientGone):
                await peer.report(error)
        await peer.close(error)
    else:
        await peer.close()


@asynccontextmanager
async def stall_timeout() -> AsyncGenerator[None]:
    """Raise if sending audio takes too long.

    Meanwhile nothing notices that the client has disconnected.
    """
    try:
        async with asyncio.timeout(STALL_TIMEOUT_S):
            yield
    except TimeoutError as error:
        raise TargetUnavailable(
            f"The draft server has taken no audio for {STALL_TIMEOUT_S:g} s: try again later."
        ) from error


class Peer:
    """The other end of an accepted WebSocket; a client that does not read is cut as any connection."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._sending = asyncio.Lock()  # events keep their order, whichever task sends them
        self._idle: asyncio.Timeout | None = None  # runs while the client sends nothing

    async def send(self, *events: dict[str, Any]) -> None:
        try:
            async with self._sending:
                for each in events:
                    await self._socket.send_json(each)
        except (WebSocketDisconnect, RuntimeError) as error:  # RuntimeError: closed earlier
            raise ClientGone("The client has disconnected.") from error
        # An event that is sent restarts the idle time, unless it has just expired.
        if self._idle is not None and not self._idle.expired():
            self._idle.reschedule(self._idle_at())

    async def report(self, error: BaseException, event_id: str | None = None) -> None:
        """Send OpenAI's event for an error; ``event_id`` is that of the client's event which caused it."""
        await self.send(event("error", error=body_of(error)["error"] | {"event_id": event_id}))

    async def frames(self) -> AsyncGenerator[str | bytes]:
        while True:
            try:
                async with asyncio.timeout_at(self._idle_at()) as self._idle:
                    message = await self._socket.receive()
            except TimeoutError as error:
                raise IdleTimeout(
                    f"Nothing was sent for {IDLE_TIMEOUT_S:g} s: connect again to continue."
                ) from error
            finally:
                self._idle = None
            if message["type"] == "websocket.disconnect":
                return
            frame: str | bytes | None = message.get("text")
            yield message["bytes"] if frame is None else frame
            await asyncio.sleep(0)  # many messages may have arrived at once, and other clients wait

    def _idle_at(self) -> float:
        return asyncio.get_running_loop().time() + IDLE_TIMEOUT_S

    async def close(self, error: BaseException | None = None) -> None:
        """Close the connection with the error's close code; the reason is its kind."""
        code, reason = 1000, ""
        if error is not None:
            answer = answer_to(error)
            code, reason = answer.close_code, answer.code or answer.type
        with suppress(WebSocketDisconnect, RuntimeError):  # it has disconnected
            await self._socket.close(code, reason)
