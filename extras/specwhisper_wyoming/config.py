"""Settings of a Wyoming server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from specwhisper.errors import InvalidRequest, UnsafeBind
from specwhisper.options import DecodingOptions, options_from
from specwhisper.rpc.addresses import is_loopback
from specwhisper.rpc.channels import Credentials, credentials_part
from specwhisper.rpc.tokens import SERVER_TOKEN
from specwhisper.settings.setting import SERVING, Settings, part
from specwhisper.settings.shared import drain_timeout_option, idle_timeout_option
from specwhisper.validated import NAMED, called, option, switch, text, whole
from specwhisper_client.resolving import SERVERS, servers_option
from specwhisper_client.servers import DEFAULT_SERVER

DEFAULT_URI = "tcp://127.0.0.1:10300"  # the port of Wyoming's speech-to-text servers


def read_uri(uri: str) -> SplitResult:
    """Read an address as Wyoming's programs write it: tcp has host and port, unix a path.

    Raises
    ------
    ValueError : for another scheme, and where host, port or path is missing.
    """
    try:
        address = urlsplit(uri)
        is_tcp = bool(address.hostname) and address.port is not None and address.path in ("", "/")
    except ValueError:  # a port that isn't a number, or a bracket without its other half
        address, is_tcp = urlsplit(""), False
    is_unix = bool(address.path) and not address.netloc
    if uri == "stdio://" or {"tcp": is_tcp, "unix": is_unix}.get(address.scheme):
        return address
    raise ValueError("write tcp://HOST:PORT, unix:///PATH of a socket, or stdio://")


@dataclass(frozen=True, kw_only=True)
class WyomingConfig(Settings):
    """Settings of ``specwhisper-wyoming``."""

    uri: str = option(
        DEFAULT_URI,
        "Address to listen on: tcp://HOST:PORT, unix:///PATH of a socket, or stdio://.",
        "URI",
        read=lambda uri: read_uri(uri) and uri,
        panel=SERVING,
    )
    server: str = servers_option(DEFAULT_SERVER, SERVERS, panel=SERVING)
    server_credentials: Credentials = credentials_part("draft servers", "server", SERVER_TOKEN)
    decoding: Mapping[str, Any] = part(  # what a request need not name
        DecodingOptions, dict, only=("padding", "languages"), only_written=True, panel=SERVING
    )
    zeroconf: str | None = text(
        None,
        "Name under which mDNS announces the server, so that Home Assistant finds it; default: not "
        "announced.",
        "NAME",
        rules=(NAMED,),
        panel=SERVING,
    )
    insecure: bool = switch(
        False,
        "Listen where other machines can connect, although the Wyoming protocol has neither encryption "
        "nor tokens.",
        panel=SERVING,
    )
    max_connections: int = whole(
        100, 1, math.inf, "Concurrent connections; each has at most one transcription.", panel=SERVING
    )
    idle_timeout_s: float = idle_timeout_option(60.0)
    drain_timeout_s: float = drain_timeout_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        address = self.address
        is_public = address.scheme == "tcp" and not is_loopback(address.hostname or "")
        if is_public and not self.insecure:
            raise UnsafeBind(
                f"{called('uri')} is {self.uri}, which would open a server without encryption and without "
                "authentication to the network, since the Wyoming protocol has neither: use 127.0.0.1, or "
                "pass --insecure if every client on that network may use it and read its traffic."
            )
        if self.zeroconf is not None and not is_public:
            raise InvalidRequest(
                f"{called('zeroconf')} announces an address that other machines can reach, and "
                f"{called('uri')} is {self.uri}: listen on tcp://0.0.0.0:10300, or leave "
                f"{called('zeroconf')} out."
            )

    @property
    def options(self) -> DecodingOptions:
        return options_from({}, self.decoding)

    @property
    def address(self) -> SplitResult:
        return read_uri(self.uri)
