"""What targets have said of themselves, for as long as the connections hold over which they said it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from specwhisper.transcription.transcriber import TargetDescription


@dataclass(frozen=True, slots=True)
class Said:
    """What is known of an address.

    Attributes
    ----------
    target : what the target there is; ``None`` before it was asked.
    takes_sessions : whether sessions are opened there without a lease: it names no other address.
    """

    target: TargetDescription | None = None
    takes_sessions: bool = False


class SaidOverConnections:
    """What targets have said, by address.

    A target does not change while it runs, and a process that takes its place has other connections. So who
    loses a connection, or has none, forgets what was said over it, and asks again.

    Parameters
    ----------
    addresses : of whom it is kept.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._said = dict.fromkeys(addresses, Said())

    def at(self, address: str) -> Said:
        """Give what was said at an address."""
        return self._said.get(address, Said())

    def describe(self, address: str, target: TargetDescription) -> None:
        """Note what a target is."""
        self._keep(address, replace(self.at(address), target=target))

    def locate(self, address: str, *, takes_sessions: bool) -> None:
        """Note whether sessions are opened at an address that was asked for a place."""
        self._keep(address, replace(self.at(address), takes_sessions=takes_sessions))

    def forget(self, address: str) -> None:
        """Forget what was said at an address."""
        self._keep(address, Said())

    def _keep(self, address: str, said: Said) -> None:
        if address in self._said:
            self._said[address] = said
