"""WebSockets: who may open one, what ends one with which code, and sending to clients that may not listen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from specwhisper.errors import (
    InvalidRequest,
    MessageTooLarge,
    ServerDraining,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.rpc.addresses import is_loopback
from specwhisper_gateway.access_log import note_error
from specwhisper_gateway.errors import ClientGone, ForeignPage, IdleTimeout
from specwhisper_gateway.state import gateway_of
from specwhisper_gateway.status import answer_to
from specwhisper_gateway.transport.access import KEY_SUBPROTOCOL

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 30.0  # for a client that has stopped to listen
STALL_TIMEOUT_S = 120.0  # for a draft server that takes no more audio
IDLE_TIMEOUT_S = 600.0  # for one that says and is told nothing: it may hold a place on the draft server

# RFC 6455's codes and the one that IANA has added for servers that are full.
INVALID_DATA, TOO_BIG, FAILED, TRY_AGAIN_LATER = 1008, 1009, 1011, 1013
CODE_OF_ERROR: dict[type[Exception], int] = {
    InvalidRequest: INVALID_DATA,
    IdleTimeout: INVALID_DATA,
    MessageTooLarge: TOO_BIG,
    ServerFull: TRY_AGAIN_LATER,
    ServerDraining: TRY_AGAIN_LATER,
    TargetUnavailable: TRY_AGAIN_LATER,
}


def close_code(error: BaseException) -> int:
    """Look up the code that a WebSocket is closed with; what is not in the table is ours to mend."""
    return next((CODE_OF_ERROR[kind] for kind in type(error).__mro__ if kind in CODE_OF_ERROR), FAILED)


def subprotocol_of(socket: WebSocket) -> str | None:
    """Choose among what a client offers; a browser gives up unless one of those is chosen."""
    offered: list[str] = socket.scope["subprotocols"]
    # A key is not to be said again.
    return next((name for name in offered if not name.startswith(KEY_SUBPROTOCOL)), None)


def check_origin(connection: HTTPConnection) -> None:
    """Refuse the pages of others: a browser lets any of them connect to what only its user can reach."""
    origin = connection.headers.get("origin")
    config = gateway_of(connection).config
    if origin is None or config.allows(origin):  # without one it is no browser
        return
    try:
        page = urlsplit(origin)
    except ValueError:  # brackets around what is no address
        page = urlsplit("")
    is_own = bool(page.netloc) and page.netloc == connection.headers.get("host")
    if config.tokens is None and is_loopback(config.host):
        # The owner of any other name can have it lead to this machine, once his page has been loaded.
        is_own = is_own and is_loopback(page.hostname or "")
    if not is_own:
        raise ForeignPage(f"A page of {origin} may not use this gateway: it has a page of its own.")


@asynccontextmanager
async def ended_by_errors(
    socket: WebSocket, peer: Peer, tell: Callable[[BaseException], Awaitable[None]]
) -> AsyncGenerator[None]:
    """Tell an accepted client what has ended its session, if it is still there, and close with the code."""
    try:
        yield
    except Exception as error:
        note_error(socket.scope, error)
        if not isinstance(error, SpecWhisperError):
            logger.exception("session failed")
        if not isinstance(error, ClientGone):
            try:
                await tell(error)
            except ClientGone:
                pass
        await peer.close(error)


@asynccontextmanager
async def unless_stalled() -> AsyncGenerator[None]:
    """Give up where nothing moves: who waits to pass audio on does not see that its client has gone."""
    try:
        async with asyncio.timeout(STALL_TIMEOUT_S):
            yield
    except TimeoutError as error:
        raise TargetUnavailable(
            f"The draft server has taken no audio for {STALL_TIMEOUT_S:g} s: try again later."
        ) from error


class Peer:
    """The other end of an accepted WebSocket.

    Parameters
    ----------
    send_timeout_s : how long it may leave unread what it is told, in seconds.
    idle_timeout_s : how long it may say nothing while it is told nothing, in seconds.
    """

    def __init__(
        self,
        socket: WebSocket,
        *,
        send_timeout_s: float = SEND_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self._socket = socket
        self._send_timeout_s = send_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._sending = asyncio.Lock()  # events keep their order, whichever task tells them
        self._patience: asyncio.Timeout | None = None  # with a client that says nothing

    async def send(self, *events: dict[str, Any]) -> None:
        """Tell events; :class:`ClientGone` where nobody listens any more."""
        try:
            async with self._sending, asyncio.timeout(self._send_timeout_s):
                for event in events:
                    await self._socket.send_json(event)
        except (WebSocketDisconnect, RuntimeError, TimeoutError) as error:  # Runtime: noticed before
            raise ClientGone("The client does not listen any more.") from error
        # Who is told something waits for it, and need not speak; unless the time for that is just over.
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._idle_at())

    async def frames(self) -> AsyncGenerator[str | bytes]:
        """Give what it says until it leaves."""
        while True:
            try:
                async with asyncio.timeout_at(self._idle_at()) as self._patience:
                    message = await self._socket.receive()
            except TimeoutError as error:
                raise IdleTimeout(
                    f"Nothing was sent for {self._idle_timeout_s:g} s: connect again to go on."
                ) from error
            finally:
                self._patience = None
            if message["type"] == "websocket.disconnect":
                return
            frame: str | bytes | None = message.get("text")
            yield message["bytes"] if frame is None else frame
            await asyncio.sleep(0)  # many messages may be here at once, and other clients wait

    def _idle_at(self) -> float:
        return asyncio.get_running_loop().time() + self._idle_timeout_s

    async def close(self, error: BaseException | None = None) -> None:
        """End the connection, with the error's code; the reason is its kind."""
        code = 1000 if error is None else close_code(error)
        reason = "" if error is None else answer_to(error).code or answer_to(error).type
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._socket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            pass  # it has left by itself
