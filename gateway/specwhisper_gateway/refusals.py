"""Refused requests: those without a known API key, and every error's answer in OpenAI's format."""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from specwhisper.errors import SpecWhisperError, Unauthenticated
from specwhisper.observe.current_call import REQUEST_ID, current_request_id
from specwhisper.rpc.tokens import SCHEME, Tokens
from specwhisper_gateway.access_log import note_caller, note_error
from specwhisper_gateway.errors import (
    BROKEN,
    INVALID,
    ClientGone,
    ForeignPage,
    WrongApiKey,
    answer_to,
    body_of,
    error_body,
    headers_of,
)
from specwhisper_gateway.realtime.secrets import ClientSecrets
from specwhisper_gateway.sockets import KEY_SUBPROTOCOLS, refuse_socket

# Health, because load balancers have no key; and the page, which asks its user for one.
OPEN_TO_ALL = re.compile(r"/health|/health/live|/|/page/[^/]+|/samples|/samples/[^/]+\.wav")

REALTIME = "/v1/realtime"

# For the API's page only: Access checks the key before any route runs.
bearer = HTTPBearer(auto_error=False, description="One of the gateway's keys, if it has any.")


class Access:
    """Wraps the application; paths that do not exist need a key too.

    Parameters
    ----------
    tokens : the known keys.
    secrets : those that open a realtime session, and nothing else.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, secrets: ClientSecrets) -> None:
        self._app = app
        self._tokens = tokens
        self._secrets = secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                note_caller(scope, self._name_of(HTTPConnection(scope)))
            except WrongApiKey as error:
                if not OPEN_TO_ALL.fullmatch(scope["path"]):
                    await refusal(scope, error)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _name_of(self, connection: HTTPConnection) -> str:
        shown = authorization(connection)
        if connection.scope["type"] == "websocket" and connection.scope["path"] == REALTIME:
            secret = self._secrets.find((shown or "")[len(SCHEME) :].strip())
            if secret is not None:
                return secret.caller
        try:
            return self._tokens.name_of(shown)
        except Unauthenticated as error:
            raise WrongApiKey(
                "Incorrect API key provided: ask the operator of this gateway for a valid key."
                if shown
                else "You did not provide an API key: send the header 'Authorization: Bearer KEY'."
            ) from error


def authorization(connection: HTTPConnection) -> str | None:
    """Return the Authorization header, or a browser's key in a subprotocol."""
    shown = connection.headers.get("authorization")
    offered: list[str] = connection.scope.get("subprotocols", [])
    if shown is None or not shown.lower().startswith(SCHEME):
        for name in offered:
            for prefix in KEY_SUBPROTOCOLS:
                if name.startswith(prefix):
                    return SCHEME + name.removeprefix(prefix)
    return shown


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
