"""Client secrets: short-lived keys that open realtime sessions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe

from specwhisper.errors import ServerFull
from specwhisper_gateway.realtime.settings import RealtimeSettings

PREFIX = "ek_"  # as OpenAI's
MAX_SECRETS = 10_000  # at a time


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
