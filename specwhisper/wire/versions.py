"""Whether client and draft server understand each other."""

from __future__ import annotations

from specwhisper import __version__
from specwhisper.errors import PairMismatch
from specwhisper.wire import CLIENT_PROTOCOL_VERSION


def check_protocol(peer: str, protocol: int, software: str, *, here: str) -> None:
    """Refuse a peer of another protocol, naming both versions; 0 is one that does not say.

    Parameters
    ----------
    peer, here : who the peer is, and who asks, for the message.
    protocol, software : the peer's versions.
    """
    if protocol not in (0, CLIENT_PROTOCOL_VERSION):
        raise PairMismatch(
            f"{peer} (specwhisper {software}) speaks protocol {protocol}, {here} (specwhisper {__version__}) "
            f"speaks {CLIENT_PROTOCOL_VERSION}: run the same version on both."
        )
