"""Leases: the short-lived right to open a session here, for one caller, signed by who gave it.

Addresses are handed on, kept and used again: the port of a target that has died may be another one's a second
later. A lease is good only at the target that gave it: who comes with an old one is told to ask anew.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from time import monotonic

from specwhisper.errors import LeaseRefused

LIFETIME_S = 60.0


class Leases:
    """Gives leases and knows them again; the key never leaves this process.

    Parameters
    ----------
    lifetime_s : how long one is good for.
    """

    def __init__(self, lifetime_s: float = LIFETIME_S, *, clock: Callable[[], float] = monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._lifetime_s = lifetime_s
        self._clock = clock

    def grant(self, caller: str) -> str:
        """Give a caller, by name, a lease."""
        until_ms = str(int((self._clock() + self._lifetime_s) * 1000))
        return f"{until_ms}.{self._signature(until_ms, caller)}"

    def check(self, lease: str, caller: str) -> None:
        """Refuse what was not given by this target, to this caller, or too long ago."""
        until_ms, _, signature = lease.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(until_ms, caller).encode()):
            raise LeaseRefused("This target has given you no such lease: ask Locate for one.")
        if self._clock() * 1000 > int(until_ms):
            raise LeaseRefused(f"This lease was good for {self._lifetime_s:g} s: ask Locate for a new one.")

    def _signature(self, until_ms: str, caller: str) -> str:
        return hmac.digest(self._key, f"{until_ms} {caller}".encode(), "sha256").hex()
