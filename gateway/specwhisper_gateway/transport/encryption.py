"""Encryption of HTTP: a certificate that may be renewed while the gateway runs."""

from __future__ import annotations

import logging
import ssl

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.tls import ServerTls

logger = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int], ...]


def encryption(tls: ServerTls) -> ssl.SSLContext:
    """Make the context of a listening socket; each handshake uses the files as they are then."""
    return _Renewed(tls).context


class _Renewed:
    """The context that handshakes begin with, which hands them to one of the newest files."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._stamp = self._now()
        self.context = self._newest = tls.context()
        self.context.sni_callback = self._hand_over

    def _hand_over(self, handshake: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Go on with the newest certificate; one that cannot be read leaves the last one in use."""
        try:
            if (now := self._now()) != self._stamp:
                self._stamp, self._newest = now, self._tls.context()
        except (OSError, InvalidRequest) as error:
            logger.warning("certificate kept", extra={"error": str(error)})
        handshake.context = self._newest

    def _now(self) -> Stamp:
        found = [path.stat() for path in (self._tls.certificate, self._tls.key)]
        return tuple((file.st_mtime_ns, file.st_size, file.st_ino) for file in found)
