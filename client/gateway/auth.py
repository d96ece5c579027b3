"""Who may ask: whoever has the gateway's key, if it has one."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from client.gateway.errors import WrongApiKey
from client.gateway.state import gateway_of

bearer = HTTPBearer(auto_error=False, description="The gateway's --api-key, where it was started with one.")


async def check_api_key(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> None:
    """Refuse a request without the key, before any of its body is read."""
    check_key(gateway_of(request).config.api_key, None if given is None else given.credentials)


def check_key(wanted: str | None, given: str | None) -> None:
    """Compare a key with the gateway's."""
    if wanted is None:
        return
    if given is None:
        raise WrongApiKey("You did not provide an API key: send the header 'Authorization: Bearer KEY'.")
    # In constant time: how long it takes must not tell how much of a guess was right.
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise WrongApiKey("Incorrect API key provided: ask the operator of this gateway for the right one.")
