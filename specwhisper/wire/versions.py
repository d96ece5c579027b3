"""Check whether two programs of different releases have a protocol in common."""

from __future__ import annotations

from dataclasses import dataclass

from specwhisper import __version__
from specwhisper.errors import PairMismatch
from specwhisper.wire import (
    CLIENT_PROTOCOL_VERSION,
    OLDEST_CLIENT_PROTOCOL_VERSION,
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
)


@dataclass(frozen=True, slots=True)
class Protocols:
    """Versions of a contract that a program supports, from the oldest to its own.

    Attributes
    ----------
    version : its own; 0 if it is not stated.
    oldest : 0 if there is no other, as in releases that did not state it.
    """

    version: int
    oldest: int = 0

    def meets(self, other: Protocols) -> bool:
        """Return whether both support a common version."""
        return (self.oldest or self.version) <= other.version and (
            other.oldest or other.version
        ) <= self.version

    def __str__(self) -> str:
        return str(self.version) if self.oldest in (0, self.version) else f"{self.oldest} to {self.version}"


LINK = Protocols(PROTOCOL_VERSION, OLDEST_PROTOCOL_VERSION)  # of draft and target servers
CLIENT = Protocols(CLIENT_PROTOCOL_VERSION, OLDEST_CLIENT_PROTOCOL_VERSION)  # of clients and draft servers


def check_protocol(peer: str, theirs: Protocols, software: str, *, here: str, own: Protocols) -> None:
    """Raise :class:`PairMismatch` if two programs have no protocol in common.

    Parameters
    ----------
    peer, here : names of the peer and of this program, for the message.
    software : the peer's version of specwhisper.
    """
    if not own.meets(theirs):
        raise PairMismatch(
            f"{peer} (specwhisper {software}) speaks protocol {theirs}, {here} (specwhisper {__version__}) "
            f"speaks {own}: update the older one. Each release works with the one before it."
        )
