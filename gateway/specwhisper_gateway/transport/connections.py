"""Limits of HTTP and WebSocket connections that uvicorn has no settings for.

uvicorn limits the time between two requests and the bytes of a WebSocket message. It waits forever for the
head of a request and for a client that reads nothing. Its ``limit_concurrency`` refuses requests, but keeps
connections. It reads 256 KiB at a time, which takes hundreds of milliseconds to parse if chunks are tiny.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from http import HTTPStatus
from typing import Any

import h11
from websockets.frames import Frame

from specwhisper.observe.request_id import KEY, received_request_id
from specwhisper.rpc.uvicorn_compat import H11Protocol
from specwhisper_gateway.errors import HeadTooLarge, MalformedRequest
from specwhisper_gateway.status import BROKEN, answer_to, body_of, error_body
from specwhisper_gateway.transport.heads import check_head
from specwhisper_gateway.transport.sockets import TOO_BIG
from specwhisper_gateway.transport.uvicorn_sockets_compat import WebSocketsSansIOProtocol

logger = logging.getLogger(__name__)

MAX_FRAGMENTS = 1024  # of a WebSocket message: empty fragments count towards no size
HEAD_S = 10.0  # from a request's first byte, or a connection's beginning, to the end of the request's head
UNREAD_S = 30.0  # for a client that reads nothing of its answer
FULL = "This gateway has reached its limit of connections: try again later."


class _Deadlines:
    """Cuts a connection whose client is too slow.

    An orderly close would wait for the client.

    Parameters
    ----------
    transport : the connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def set_head(self, is_due: bool) -> None:
        """Start the deadline of a request's head, or stop it."""
        if is_due and self._head is None:
            self._head = asyncio.get_running_loop().call_later(HEAD_S, self._transport.abort)
        elif not is_due and self._head is not None:
            self._head.cancel()
            self._head = None

    def set_unread(self, num_bytes: int) -> None:
        """Start the deadline for the client to read some of the unread bytes; 0 stops it."""
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None
        if num_bytes:
            self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._check_unread, num_bytes)

    def _check_unread(self, before: int) -> None:
        num_bytes = self._transport.get_write_buffer_size()
        if num_bytes < before:
            self.set_unread(num_bytes)
        else:
            self._transport.abort()


class _Bounded(asyncio.BufferedProtocol):
    """Deadlines and read size, for both kinds of connection.

    Attributes
    ----------
    read_bytes : bytes to read at a time; they are parsed at once, while other connections wait.
    """

    read_bytes: int
    transport: Any
    data_received: Any
    _deadlines: _Deadlines
    _read: memoryview

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the memory to read into."""
        return self._read

    def buffer_updated(self, num_bytes: int) -> None:
        """Parse the bytes that were read."""
        self.data_received(bytes(self._read[:num_bytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with the deadline of the first head."""
        super().connection_made(transport)
        self._read = memoryview(bytearray(self.read_bytes))
        self._deadlines = _Deadlines(self.transport)
        self._deadlines.set_head(True)
        # Every unread byte counts, the last ones too. Not 0: encrypted transports would never resume.
        self.transport.set_write_buffer_limits(high=1)

    def eof_received(self) -> None:
        """Let the transport close the connection."""

    def pause_writing(self) -> None:
        """Start the deadline: the client has unread bytes."""
        super().pause_writing()
        self._deadlines.set_unread(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop the deadline: the client has read everything."""
        super().resume_writing()
        self._deadlines.set_unread(0)

    def connection_lost(self, error: Exception | None) -> None:
        """Stop all deadlines."""
        self._deadlines.set_head(False)
        self._deadlines.set_unread(0)
        super().connection_lost(error)


class HttpConnection(_Bounded, H11Protocol):
    """An HTTP/1 connection, which may become a WebSocket.

    Parameters
    ----------
    max_connections : limit of open connections.
    """

    read_bytes = 4 * 1024  # parsed in milliseconds, even if chunks are tiny

    def __init__(self, *args: Any, max_connections: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._max_connections = max_connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit a connection, or refuse it with 503 above the limit."""
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            body = error_body(FULL, BROKEN, code="unavailable")
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, body, "retry-after: 1")

    def data_received(self, data: bytes) -> None:
        """Parse data; a head that has begun has a deadline to end."""
        super().data_received(data)
        is_http = self.transport.get_protocol() is self  # else it has become a WebSocket
        self._deadlines.set_head(is_http and (self.cycle is None or self.cycle.response_complete))

    def _should_upgrade(self) -> bool:
        """Return whether a request becomes a WebSocket.

        One with too large a head is refused as a request.
        """
        return super()._should_upgrade() and _fits(self.scope)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in our own format.

        A request that is being answered ends with it.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # its request has been answered
            return
        cause = sys.exception()
        is_too_large = (
            isinstance(cause, h11.RemoteProtocolError)
            and cause.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            and self.conn.our_state is h11.IDLE
        )
        error = HeadTooLarge() if is_too_large else MalformedRequest()
        self._refuse(HTTPStatus(answer_to(error).status), body_of(error))

    def _refuse(self, status: HTTPStatus, body: dict[str, Any], *headers: str) -> None:
        """Send an error without the application and close the connection."""
        name = received_request_id(())
        logger.info("refused", extra={"request": name, "status": status.value})
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "content-type: application/json",
            f"content-length: {len(content)}",
            "connection: close",
            f"{KEY}: {name}",
            *headers,
        )
        self.transport.write("\r\n".join((*head, "", "")).encode() + content)
        self.transport.close()


class SocketConnection(_Bounded, WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    read_bytes = 2 * 1024  # hundreds of messages, if they are tiny

    def data_received(self, data: bytes) -> None:
        """Parse data; a handshake has a deadline too."""
        super().data_received(data)
        self._deadlines.set_head(not self.handshake_initiated)

    def handle_cont(self, event: Frame) -> None:
        """Add a fragment to its message; close the connection after too many."""
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(TOO_BIG, f"a message has at most {MAX_FRAGMENTS} fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        await super().send(message)
        # A refusal completes the handshake too; otherwise uvicorn logs an error.
        self.handshake_complete = self.handshake_complete or self.close_sent


def _fits(scope: Any) -> bool:
    try:
        check_head(scope)
    except HeadTooLarge:
        return False
    return True
