"""Error responses in OpenAI's format, with the status that ``errors.py`` has for them."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Scope
from starlette.websockets import WebSocketClose

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.current_call import REQUEST_ID, current_request_id
from specwhisper_gateway.access_log import note_error
from specwhisper_gateway.errors import (
    BROKEN,
    INVALID,
    ClientGone,
    ForeignPage,
    answer_to,
    body_of,
    error_body,
    headers_of,
)
from specwhisper_gateway.transport.sockets import refuse_socket


def add_error_handlers(app: FastAPI) -> None:
    app.exception_handler(SpecWhisperError)(_refused)
    app.exception_handler(ClientDisconnect)(_refused)
    app.exception_handler(HTTPException)(_no_such_route)
    app.exception_handler(Exception)(_failed)


def refusal(scope: Scope, error: SpecWhisperError) -> ASGIApp:
    """Return the answer to an error, and note the error for log and metrics.

    It is a response or, on a WebSocket that is not open yet, an event after accepting it. A page of another
    site must not find out that this gateway exists: its handshake is refused.
    """
    note_error(scope, error)
    if scope["type"] == "websocket":
        return WebSocketClose() if isinstance(error, ForeignPage) else partial(refuse_socket, error)
    return JSONResponse(body_of(error), answer_to(error).status, headers_of(error))


async def _refused(request: HTTPConnection, error: SpecWhisperError | ClientDisconnect) -> ASGIApp:
    if isinstance(error, ClientDisconnect):
        error = ClientGone("The client disconnected before its request was complete.")
    return refusal(request.scope, error)


async def _no_such_route(request: HTTPConnection, error: HTTPException) -> JSONResponse:
    message, method, path = error.detail, request.scope.get("method", "GET"), request.url.path
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"Invalid URL ({method} {path})"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"{method} is not allowed at {path}: use {(error.headers or {}).get('Allow', 'GET')}."
    kind = INVALID if error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR else BROKEN
    return JSONResponse(error_body(message, kind), error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """Answer an unexpected error; the server logs it with its traceback.

    It bypasses the middleware, so the request id is added here.
    """
    return JSONResponse(body_of(error), answer_to(error).status, {REQUEST_ID: current_request_id()})
