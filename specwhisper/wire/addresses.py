"""Network addresses: ``HOST:PORT`` and which hosts only this machine can reach."""

from __future__ import annotations

import ipaddress

from specwhisper.errors import InvalidRequest, UnsafeBind


def split_address(address: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; an IPv6 host stands in brackets, as in ``[::1]:50052``."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    is_host = bool(host) and not set(host) & set("/[] ") and (":" in host) == bracketed
    number = int(port) if port.isascii() and port.isdecimal() else 0
    if not is_host or not 0 < number < 65_536:
        raise InvalidRequest(f"Address '{address}' is not HOST:PORT; write for example 127.0.0.1:50052.")
    return host, number


def join_address(host: str, port: int) -> str:
    """Write ``HOST:PORT``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host; names other than ``localhost`` count as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, *, insecure: bool, is_encrypted: bool = False, asks_who: bool = False) -> None:
    """Refuse to expose a server that is not encrypted, or lets everybody in, unless the operator insists."""
    if insecure or is_loopback(host) or (is_encrypted and asks_who):
        return
    wanted = (("encryption", is_encrypted), ("a check of who calls", asks_who))
    lacks = " and without ".join(name for name, is_there in wanted if not is_there)
    raise UnsafeBind(
        f"Listening on '{host}' would open a server without {lacks} to the network: give it what it "
        "lacks, use 127.0.0.1, or pass --insecure if everybody on that network may use it and read "
        "along."
    )
