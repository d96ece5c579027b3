"""HTTPS connections that check a server's name as gRPC's channels do."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPSConnection

from specwhisper.rpc.tls import ClientTls


class NamedConnection(HTTPSConnection):
    """An encrypted connection that verifies the name in the certificate.

    Parameters
    ----------
    host : may end with a port.
    """

    def __init__(self, host: str, port: int | None = None, *, tls: ClientTls, timeout: float) -> None:
        self._tls_context = tls.context()
        super().__init__(host, port, timeout=timeout, context=self._tls_context)
        self._server_name = tls.server_name or self.host

    def connect(self) -> None:
        HTTPConnection.connect(self)
        self.sock = self._tls_context.wrap_socket(self.sock, server_hostname=self._server_name)
