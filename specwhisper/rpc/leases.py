"""Leases: the right of one caller to open a session at one target.

A lease is short-lived and signed by its target. Addresses are passed on, cached and reused: a second after a
target has died, its port may belong to another one. A lease is valid only at the target that granted it; a
caller with another lease must ask for a new one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from time import monotonic

from specwhisper.errors import LeaseRefused

LIFETIME_S = 60.0


class Leases:
    """Grants and checks leases; the key never leaves this process.

    Parameters
    ----------
    lifetime_s : how long a lease is valid.
    """

    def __init__(self, lifetime_s: float = LIFETIME_S, *, clock: Callable[[], float] = monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._lifetime_s = lifetime_s
        self._clock = clock

    def grant(self, caller: str) -> str:
        until_ms = str(int((self._clock() + self._lifetime_s) * 1000))
        return f"{until_ms}.{self._signature(until_ms, caller)}"

    def check(self, lease: str, caller: str) -> None:
        """Raise :class:`LeaseRefused` unless the lease is valid for the caller.

        A valid one was granted to this caller by this target.
        """
        until_ms, _, signature = lease.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(until_ms, caller).encode()):
            raise LeaseRefused("This target has granted you no such lease: ask Locate for one.")
        if self._clock() * 1000 > int(until_ms):
            raise LeaseRefused(f"This lease was valid for {self._lifetime_s:g} s: ask Locate for a new one.")

    def _signature(self, until_ms: str, caller: str) -> str:
        return hmac.digest(self._key, f"{until_ms} {caller}".encode(), "sha256").hex()
