"""Network addresses: read, write and check ``HOST:PORT``."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import TYPE_CHECKING

from specwhisper.errors import InvalidRequest, PortTaken, UnsafeBind

if TYPE_CHECKING:
    from specwhisper.rpc.tls import ServerTls
    from specwhisper.rpc.tokens import Tokens


def split_address(address: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; an IPv6 host is in brackets, as in ``[::1]:50052``."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    is_host = bool(host) and not set(host) & set("/[] ") and (":" in host) == bracketed
    number = int(port) if port.isascii() and port.isdecimal() else 0
    if not is_host or not 0 < number < 65_536:
        raise InvalidRequest(
            f"Address '{address}' is not HOST:PORT: write a host, a colon and a port from 1 to 65535."
        )
    return host, number


def to_addresses(text: str) -> str:
    """Return addresses with commas between, as they are, if all are ``HOST:PORT``."""
    for address in text.split(","):
        split_address(address.strip())
    return text


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_error(host: str, port: int, error: OSError | None = None) -> InvalidRequest:
    """Return the error of a server that could not listen: :class:`PortTaken`, or one that stays.

    Without the system's ``error``, binding is tried again. If that succeeds, the port was taken a moment ago.
    """
    error = error or bind_error(host, port)
    where = join_address(host, port)
    if error is None or error.errno == errno.EADDRINUSE:
        return PortTaken(f"Cannot listen on {where}: the port is taken.")
    return InvalidRequest(f"Cannot listen on {where}: {error.strerror}.")


def bind_error(host: str, port: int) -> OSError | None:
    """Try to bind an address; return the system's error, if any."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(address)
    except OSError as error:
        return error
    return None


def port_error(host: str, port: int) -> InvalidRequest | None:
    """Return the error of a server that would listen there now, if any; 0 is any free port."""
    error = bind_error(host, port) if port else None
    return None if error is None else listen_error(host, port, error)


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host; of names, that is ``localhost`` only."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def check_bind(
    host: str, *, insecure: bool, tls: ServerTls | None = None, tokens: Tokens | None = None
) -> None:
    """Raise :class:`UnsafeBind` if a server would be open to other machines.

    A server that is not on loopback needs encryption, and tokens or client certificates.
    """
    authenticates = tokens is not None or (tls is not None and tls.client_roots is not None)
    if insecure or is_loopback(host) or (tls is not None and authenticates):
        return
    needed = (("encryption", tls is not None), ("authentication", authenticates))
    missing = " and without ".join(name for name, is_present in needed if not is_present)
    raise UnsafeBind(
        f"Listening on '{host}' would open a server without {missing} to the network: add certificates and "
        "tokens, use 127.0.0.1, or pass --insecure if every client on that network may use it and read its "
        "traffic."
    )
