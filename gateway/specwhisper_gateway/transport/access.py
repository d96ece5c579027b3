"""API keys: a request without a known key is refused, whatever its path."""

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
from specwhisper_gateway.realtime.secrets import ClientSecrets
from specwhisper_gateway.transport.sockets import KEY_SUBPROTOCOLS

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
