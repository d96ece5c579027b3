"""The one door that every request passes: who shows no key is turned away, whatever he asks for."""

from __future__ import annotations

import re

from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from specwhisper.errors import Unauthenticated
from specwhisper.rpc.tokens import SCHEME, Tokens
from specwhisper_gateway.access_log import note_caller
from specwhisper_gateway.errors import WrongApiKey
from specwhisper_gateway.handlers import refusal

# Health, for load balancers, which have no key; and the page, which asks its reader for one.
OPEN_TO_ALL = re.compile(r"/health|/health/live|/|/page/[^/]+|/samples|/samples/[^/]+\.wav")
KEY_SUBPROTOCOL = "openai-insecure-api-key."  # how browsers, which cannot set headers, tell a key

# For the page of the API only: the door has looked before any route does.
bearer = HTTPBearer(auto_error=False, description="One of the gateway's keys, where it asks for one.")


class Access:
    """Wraps the application; also paths that do not exist ask for a key.

    Parameters
    ----------
    tokens : who may come in.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request or a WebSocket in, or answer it at the door, before any of its body is read."""
        if scope["type"] in ("http", "websocket"):
            try:
                note_caller(scope, self._name_of(HTTPConnection(scope)))
            except WrongApiKey as error:
                if not OPEN_TO_ALL.fullmatch(scope["path"]):
                    await refusal(scope, error)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _name_of(self, connection: HTTPConnection) -> str:
        shown = _authorization(connection)
        try:
            return self._tokens.name_of(shown)
        except Unauthenticated as error:
            raise WrongApiKey(
                "Incorrect API key provided: ask the operator of this gateway for the right one."
                if shown
                else "You did not provide an API key: send the header 'Authorization: Bearer KEY'."
            ) from error


def _authorization(connection: HTTPConnection) -> str | None:
    """Give the header of that name, or what a browser's WebSocket says in its place."""
    shown = connection.headers.get("authorization")
    offered: list[str] = connection.scope.get("subprotocols", [])
    if shown is None or not shown.lower().startswith(SCHEME):
        for name in offered:
            if name.startswith(KEY_SUBPROTOCOL):
                return SCHEME + name.removeprefix(KEY_SUBPROTOCOL)
    return shown
