"""Connections that end where the other side neither says nor takes what is due, and how many there may be."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from specwhisper.observe.request_id import KEY, received_request_id
from specwhisper_gateway.errors import HeadTooLarge, MalformedRequest
from specwhisper_gateway.status import BROKEN, answer_to, body_of, error_body
from specwhisper_gateway.transport.heads import check_head
from specwhisper_gateway.transport.sockets import TOO_BIG

logger = logging.getLogger(__name__)

MAX_FRAGMENTS = 1024  # of a message on a WebSocket: empty ones count towards no size
HEAD_S = 10.0  # from a request's first byte, or a connection's beginning, to the end of the request's head
UNREAD_S = 30.0  # for a client that takes nothing of its answer
FULL = "This gateway has as many connections as it may: try again later."


class _Deadlines:
    """Ends a connection whose other side is too slow; it is cut, as an orderly end would wait for it.

    Parameters
    ----------
    transport : the connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def expect_head(self, is_due: bool) -> None:
        """Wait for a request's head, or do not any more."""
        if is_due and self._head is None:
            self._head = asyncio.get_running_loop().call_later(HEAD_S, self._transport.abort)
        elif not is_due and self._head is not None:
            self._head.cancel()
            self._head = None

    def expect_reading(self, num_bytes: int) -> None:
        """Wait until something of so many bytes is taken; 0 ends that."""
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None
        if num_bytes:
            self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._check_reading, num_bytes)

    def _check_reading(self, before: int) -> None:
        num_bytes = self._transport.get_write_buffer_size()
        if num_bytes < before:
            self.expect_reading(num_bytes)
        else:
            self._transport.abort()


class _Bounded(asyncio.BufferedProtocol):
    """Limits of both kinds of connection: bytes read at a time, and how long bytes wait to be taken.

    Attributes
    ----------
    read_bytes : how much is read at a time: it is parsed at once, while other connections wait.
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
        """Parse what was read."""
        self.data_received(bytes(self._read[:num_bytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a head that is due."""
        super().connection_made(transport)
        self._read = memoryview(bytearray(self.read_bytes))
        self._deadlines = _Deadlines(self.transport)
        self._deadlines.expect_head(True)
        # Whatever waits is known of, also behind the last word. Not 0: encrypted ones would wait for nothing.
        self.transport.set_write_buffer_limits(high=1)

    def eof_received(self) -> None:
        """Let the transport close the connection."""

    def pause_writing(self) -> None:
        """Bytes wait."""
        super().pause_writing()
        self._deadlines.expect_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """All are taken."""
        super().resume_writing()
        self._deadlines.expect_reading(0)

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing is due any more."""
        self._deadlines.expect_head(False)
        self._deadlines.expect_reading(0)
        super().connection_lost(error)


class HttpConnection(_Bounded, H11Protocol):
    """A connection as it begins.

    Attributes
    ----------
    max_connections : how many there may be.
    """

    max_connections: int
    read_bytes = 4 * 1024  # parsing that much takes milliseconds where chunks are tiny

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection in, or refuse it whatever it wants."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            body = error_body(FULL, BROKEN, code="unavailable")
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, body, "retry-after: 1")

    def data_received(self, data: bytes) -> None:
        """Hear what is sent; whatever has begun a head has to end it."""
        super().data_received(data)
        is_ours = self.transport.get_protocol() is self  # else it has become a WebSocket
        self._deadlines.expect_head(is_ours and (self.cycle is None or self.cycle.response_complete))

    def _should_upgrade(self) -> bool:
        """Return whether a request becomes a WebSocket; too large a head is refused as a request."""
        return super()._should_upgrade() and _fits(self.scope)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; after a request that is being answered, it ends that too."""
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
        """Answer what is no request that the application could answer, and end the connection."""
        name = received_request_id(())
        logger.info("refused", extra={"request": name, "status": status.value})
        self.transport.write(_answer(status, body, f"{KEY}: {name}", *headers))
        self.transport.close()


class SocketConnection(_Bounded, WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    read_bytes = 2 * 1024  # hundreds of messages, where they are tiny

    def data_received(self, data: bytes) -> None:
        """Hear what is sent; a handshake that cannot be read is never answered, so it has to end too."""
        super().data_received(data)
        self._deadlines.expect_head(not self.handshake_initiated)

    def handle_cont(self, event: Frame) -> None:
        """Add a fragment to its message; fail the connection after too many."""
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(TOO_BIG, f"a message has at most {MAX_FRAGMENTS} fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    async def send(self, message: Any) -> None:
        """Send what the application says."""
        await super().send(message)
        # A refusal ends the handshake too; uvicorn would log an error of ours.
        self.handshake_complete = self.handshake_complete or self.close_sent


def at_most(max_connections: int) -> type[HttpConnection]:
    """Make the kind of which there are so many."""
    return type("LimitedConnection", (HttpConnection,), {"max_connections": max_connections})


def _answer(status: HTTPStatus, body: dict[str, Any], *headers: str) -> bytes:
    """Return a whole response that ends its connection."""
    content = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "content-type: application/json",
        f"content-length: {len(content)}",
        "connection: close",
        *headers,
    )
    return "\r\n".join((*head, "", "")).encode() + content


def _fits(scope: Any) -> bool:
    try:
        check_head(scope)
    except HeadTooLarge:
        return False
    return True
