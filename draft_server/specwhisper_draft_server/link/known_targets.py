"""Reports of targets over connections that are still open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from specwhisper.transcription.transcriber import TargetDescription


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """The last reports of the server at an address.

    Attributes
    ----------
    description : the target there; ``None`` before it was asked.
    needs_no_lease : whether it opens sessions itself, without a lease: it is no locator.
    """

    description: TargetDescription | None = None
    needs_no_lease: bool = False


class KnownTargets:
    """The reports of each configured target, by address.

    A target does not change while it runs, and its successor has other connections. So call :meth:`forget`
    when a connection is lost, or was never there, and ask again.

    Parameters
    ----------
    addresses : the targets to remember; others are ignored.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._by_address = dict.fromkeys(addresses, KnownTarget())

    def at(self, address: str) -> KnownTarget:
        """Return the reports of the server at an address; empty ones if there are none."""
        return self._by_address.get(address, KnownTarget())

    def note_description(self, address: str, description: TargetDescription) -> None:
        """Remember a target's description."""
        self._set(address, replace(self.at(address), description=description))

    def note_lease(self, address: str, *, needs_no_lease: bool) -> None:
        """Remember whether the server at an address opens sessions without a lease."""
        self._set(address, replace(self.at(address), needs_no_lease=needs_no_lease))

    def forget(self, address: str) -> None:
        """Forget what the server at an address has reported."""
        self._set(address, KnownTarget())

    def _set(self, address: str, known: KnownTarget) -> None:
        if address in self._by_address:
            self._by_address[address] = known
