"""Check that two programs speak the same protocol."""

from __future__ import annotations

from specwhisper import __version__
from specwhisper.errors import PairMismatch


def check_protocol(peer: str, version: int, software: str, *, here: str, own: int) -> None:
    """Raise :class:`PairMismatch` if a peer speaks another protocol.

    Parameters
    ----------
    peer, here : names of the peer and of this program, for the message.
    version, own : their protocol versions.
    software : the peer's version of specwhisper.
    """
    if version != own:
        raise PairMismatch(
            f"{peer} (specwhisper {software}) speaks protocol {version}, {here} (specwhisper {__version__}) "
            f"speaks {own}: install the same version on both."
        )
