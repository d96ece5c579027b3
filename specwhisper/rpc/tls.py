"""TLS certificates of servers and clients, and connections that verify names as gRPC does."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import grpc

from specwhisper.errors import InvalidRequest
from specwhisper.settings.setting import SECURITY
from specwhisper.validated import called, option, switch

logger = logging.getLogger(__name__)

ENCRYPTION = ("use_ssl", "use_ssl_mutual")  # either switch turns a server's on


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A server's certificate, and the CA bundle for client certificates.

    Attributes
    ----------
    certificate, key : PEM files; read again for each connection, so that a new certificate needs no restart.
    client_roots : CA bundle (PEM) used to verify client certificates; ``None`` requests none.
    """

    certificate: Path
    key: Path
    client_roots: Path | None = None

    def __post_init__(self) -> None:
        self._read()
        self.context()  # gRPC reports invalid files only after the model is loaded, or never

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a listening gRPC port."""
        return grpc.dynamic_ssl_server_credentials(
            self._read(), self._read_again, require_client_authentication=self.client_roots is not None
        )

    def context(self) -> ssl.SSLContext:
        """Return the context of an HTTP server; each handshake uses the files as they are then."""
        newest = context = self._context()
        stamp = self._stamp()

        def renew(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            nonlocal newest, stamp
            try:
                if (now := self._stamp()) != stamp:
                    newest, stamp = self._context(), now
            except (OSError, InvalidRequest) as error:
                logger.warning("certificate kept", extra={"error": str(error)})
            connection.context = newest

        context.sni_callback = renew
        return context

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        _load_chain(context, self.certificate, self.key)
        if self.client_roots is not None:
            try:
                context.load_verify_locations(self.client_roots)
            except OSError as error:
                raise _no_roots(self.client_roots, error) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamp(self) -> list[tuple[int, int, int]]:
        files = [path.stat() for path in (self.certificate, self.key, self.client_roots) if path is not None]
        return [(file.st_mtime_ns, file.st_size, file.st_ino) for file in files]

    def _read_again(self) -> grpc.ServerCertificateConfiguration | None:
        """Read the files for another connection; ``None`` keeps the last valid ones."""
        try:
            return self._read()
        except InvalidRequest as error:
            logger.warning("certificate kept", extra={"error": str(error)})
            return None

    def _read(self) -> grpc.ServerCertificateConfiguration:
        roots = None if self.client_roots is None else read_pem(self.client_roots)
        pair = (read_pem(self.key), read_pem(self.certificate))
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)


def pem_option(help: str, *needs: str) -> Any:
    return option(None, help, "FILE", read=lambda path: read_pem(path) and path, needs=needs, panel=SECURITY)


@dataclass(frozen=True, kw_only=True)
class TlsFlags:
    """The flags of a server's certificates."""

    use_ssl: bool = switch(False, "TLS on every connection.", panel=SECURITY)
    use_ssl_mutual: bool = switch(False, "TLS with client certificates on every connection.", panel=SECURITY)
    server_cert: Path | None = pem_option("Certificate (PEM) of this server.", *ENCRYPTION)
    server_key: Path | None = pem_option("Private key (PEM) of the certificate.", *ENCRYPTION)
    root_cert: Path | None = pem_option("CA bundle (PEM) used to verify client certificates.", *ENCRYPTION)

    def tls(self) -> ServerTls | None:
        """Return the certificates; incomplete flags are an error."""
        if not (self.use_ssl or self.use_ssl_mutual):
            return None
        if self.server_cert is None or self.server_key is None:
            raise InvalidRequest(
                f"{called('use_ssl')} needs {called('server_cert')} and {called('server_key')}."
            )
        if self.use_ssl_mutual != (self.root_cert is not None):
            raise InvalidRequest(f"{called('use_ssl_mutual')} and {called('root_cert')} belong together.")
        return ServerTls(self.server_cert, self.server_key, self.root_cert)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The CA bundle of a client, and its certificate.

    Attributes
    ----------
    roots : CA bundle (PEM) used to verify the server's certificate; ``None`` for gRPC's own.
    certificate, key : PEM files, if the server requires them.
    server_name : host name in the server's certificate, if it is not the host of the address.
    """

    roots: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidRequest("A client certificate and its key belong together: set both, or neither.")
        self.credentials()
        self.context()  # gRPC accepts a file without a certificate, and then rejects every server

    def context(self) -> ssl.SSLContext:
        """Return the context of an HTTP client; without roots, the system's are trusted."""
        try:
            context = ssl.create_default_context(cafile=self.roots)
        except OSError as error:
            raise _no_roots(self.roots, error) from error
        if self.certificate is not None and self.key is not None:
            _load_chain(context, self.certificate, self.key)
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a gRPC channel."""
        files = (self.roots, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(path and read_pem(path) for path in files))


def http_connection(host: str, port: int | None, tls: ClientTls | None, timeout_s: float) -> HTTPConnection:
    """Return a connection to an HTTP server, without encryption if ``tls`` is ``None``."""
    if tls is None:
        return HTTPConnection(host, port, timeout=timeout_s)
    return NamedConnection(host, port, tls=tls, timeout=timeout_s)


class NamedConnection(HTTPSConnection):
    """An encrypted connection that verifies the name in the certificate.

    ``host``: may end with a port.
    """

    def __init__(self, host: str, port: int | None = None, *, tls: ClientTls, timeout: float) -> None:
        self._tls_context = tls.context()
        super().__init__(host, port, timeout=timeout, context=self._tls_context)
        self._server_name = tls.server_name or self.host

    def connect(self) -> None:
        HTTPConnection.connect(self)
        self.sock = self._tls_context.wrap_socket(self.sock, server_hostname=self._server_name)


def read_pem(path: Path) -> bytes:
    """Read a PEM file."""
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    if b"-----BEGIN " not in pem:
        raise InvalidRequest(f"{path} is not in PEM format: it holds no '-----BEGIN'.")
    return pem


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # else an encrypted key would prompt
    except OSError as error:  # ssl's errors are all of this class
        raise InvalidRequest(f"{certificate} and {key} cannot be used together: {error.strerror}.") from error


def _no_roots(path: Path | None, error: OSError) -> InvalidRequest:
    return InvalidRequest(f"{path or 'This system'} has no certificates to trust: {error.strerror}.")
