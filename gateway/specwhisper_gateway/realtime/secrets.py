"""Client secrets: short-lived keys that open realtime sessions, and the routes that return them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from fastapi import APIRouter, Depends, Request

from specwhisper.errors import ServerFull
from specwhisper.validated import choice, option, whole
from specwhisper_gateway.access_log import caller_of
from specwhisper_gateway.audio.uploads import limited
from specwhisper_gateway.messages import MAX_CONTROL_BYTES, new_id, read_object
from specwhisper_gateway.option_fields import to_object, values_of, within
from specwhisper_gateway.realtime.settings import LANGUAGE, RealtimeSettings, nested
from specwhisper_gateway.sockets import check_origin_without_keys
from specwhisper_gateway.state import gateway_of

PREFIX = "ek_"  # as OpenAI's
MAX_SECRETS = 10_000  # at a time
router = APIRouter(
    prefix="/v1/realtime", tags=["Realtime"], dependencies=[Depends(check_origin_without_keys)]
)
SESSION_LIFETIME_S = 60  # a transcription session's secret, as OpenAI's


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """The session that a secret opens.

    Attributes
    ----------
    caller : name of the key with which it was requested; limits count its sessions as that caller's.
    settings : the settings its sessions start with.
    expires_s : Unix time until which it opens sessions; an open session continues.
    """

    caller: str
    settings: RealtimeSettings
    expires_s: float


class ClientSecrets:
    """The secrets of one gateway; another one does not know them.

    Their digests are kept in memory.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._secrets: dict[bytes, ClientSecret] = {}

    def create(self, caller: str, settings: RealtimeSettings, lifetime_s: float) -> tuple[str, ClientSecret]:
        """Return a new secret; raise :class:`ServerFull` if there are too many."""
        now = self._clock()
        if len(self._secrets) >= MAX_SECRETS:
            self._secrets = {key: known for key, known in self._secrets.items() if known.expires_s > now}
        if len(self._secrets) >= MAX_SECRETS:
            raise ServerFull(f"This gateway has {MAX_SECRETS} client secrets that have not expired.")
        value = PREFIX + token_urlsafe(32)
        secret = ClientSecret(caller, settings, now + lifetime_s)
        self._secrets[_digest(value)] = secret
        return value, secret

    def find(self, value: str) -> ClientSecret | None:
        secret = self._secrets.get(_digest(value))
        return secret if secret is not None and secret.expires_s > self._clock() else None


def _digest(value: str) -> bytes:
    return sha256(value.encode()).digest()


@dataclass
class _Lifetime:
    anchor: str = choice("created_at", choices=("created_at",))
    seconds: int = whole(600, 10, 7_200)


@dataclass
class _SecretRequest:
    expires_after: Any = within(_Lifetime)
    session: Any = option(None, read=to_object)


@router.post("/client_secrets")
async def client_secret(request: Request) -> dict[str, Any]:
    """Return a secret that opens sessions, in OpenAI's format of today."""
    asked = values_of(_SecretRequest, await _body(request))
    settings = await _checked(request, RealtimeSettings().updated(asked.get("session") or {}))
    lifetime = _Lifetime(**asked.get("expires_after") or {})
    value, expires_s = _create(request, settings, lifetime.seconds)
    session = {"id": new_id("sess"), "object": "realtime.transcription_session", "expires_at": expires_s}
    return {"value": value, "expires_at": expires_s, "session": session | settings.describe()}


@router.post("/transcription_sessions")
async def transcription_session(request: Request) -> dict[str, Any]:
    """Return a session, and a secret that opens it, in the beta's format."""
    settings = await _checked(request, RealtimeSettings().updated(nested(await _body(request))))
    value, expires_s = _create(request, settings, SESSION_LIFETIME_S)
    return {
        "id": new_id("sess"),
        "object": "realtime.transcription_session",
        "modalities": ["text"],
        **settings.describe_flat(),
        "client_secret": {"value": value, "expires_at": expires_s},
    }


async def _checked(request: Request, settings: RealtimeSettings) -> RealtimeSettings:
    await gateway_of(request).check_languages(settings.options(), LANGUAGE)
    return replace(settings, model=await gateway_of(request).model_names.resolve(settings.model))


def _create(request: Request, settings: RealtimeSettings, lifetime_s: int) -> tuple[str, int]:
    value, secret = gateway_of(request).secrets.create(caller_of(request), settings, lifetime_s)
    return value, int(secret.expires_s)


async def _body(request: Request) -> dict[str, Any]:
    """Read a JSON object; an empty body is an empty one."""
    receive = limited(request.receive, MAX_CONTROL_BYTES, "send only the settings of the session.")
    body = await Request(request.scope, receive).body()
    return read_object(body.decode(errors="replace")) if body else {}
