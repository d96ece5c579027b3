"""Settings of every server: address, encryption, tokens, limits, drain, metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from specwhisper.errors import UnsafeBind
from specwhisper.failpoints import VARIABLE, Failpoints
from specwhisper.rpc.addresses import check_bind, is_loopback, port_error
from specwhisper.rpc.tls import ServerTls, TlsFlags
from specwhisper.rpc.tokens import Tokens, TokensFlag
from specwhisper.settings.setting import OBSERVABILITY, SECURITY, SERVING, Settings, part
from specwhisper.settings.shared import drain_timeout_option, idle_timeout_option, port_option, seconds_option
from specwhisper.types import Limits
from specwhisper.validated import ABOVE_0, naming, switch, text, whole

SHORT_CALLS = 100  # unary calls that one connection may have open beside its sessions


@dataclass(frozen=True, kw_only=True)
class ListenerOptions(Settings):
    """Settings that gRPC servers and the gateway share; without ``tokens`` every caller is admitted."""

    host: str = text("127.0.0.1", "Address to listen on.", "HOST", panel=SERVING)
    port: int = port_option(0)
    insecure: bool = switch(
        False,
        "Listen where other machines can connect, even without encryption or tokens; only TLS "
        "detects bytes that the network corrupts.",
        panel=SERVING,
    )
    session_timeout_s: float = seconds_option(
        "session-timeout", 86_400.0, ABOVE_0, "Longest session, in seconds."
    )
    drain_timeout_s: float = drain_timeout_option()
    tls: ServerTls | None = None
    tokens: Tokens | None = None
    max_sessions_per_token: int | None = whole(
        None,
        1,
        math.inf,
        "Concurrent sessions of each name in --tokens-file, or else of each address; default: all, or all "
        "but an eighth if another caller was there within a day.",
        at_most="max_sessions",
        panel=SECURITY,
    )
    metrics_port: int | None = whole(
        None,
        0,
        65_535,
        "Port for Prometheus metrics; 0: any free port; default: none.",
        "PORT",
        panel=OBSERVABILITY,
    )
    metrics_host: str = text(
        "127.0.0.1",
        "Address of the metrics port; the rules for --host apply.",
        "HOST",
        needs=("metrics_port",),
        panel=OBSERVABILITY,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, host in (("host", self.host), ("metrics_host", self.metrics_host)):
            with naming(name):
                check_bind(host, insecure=self.insecure, tls=self.tls, tokens=self.tokens)

    def check_ports(self) -> None:
        """Raise if a port is taken: before a model is loaded, which may take minutes."""
        for host, port in ((self.host, self.port), (self.metrics_host, self.metrics_port)):
            if (error := port_error(host, port or 0)) is not None:
                raise error

    @property
    def may_describe(self) -> bool:
        """Whether the API may be listed: on this machine only, or to callers with tokens."""
        return is_loopback(self.host) or self.tokens is not None


@dataclass(frozen=True, kw_only=True)
class ServingOptions(ListenerOptions):
    """How a gRPC server listens and stops.

    Attributes
    ----------
    failpoints : in tests.
    local_socket : a path where the server listens as well, unencrypted: for calls of its own process, which
        has neither a certificate nor a token. Only its user may enter the folder.
    """

    tls: ServerTls | None = part(TlsFlags, None, then=TlsFlags.tls, prefix="grpc")
    tokens: Tokens | None = part(TokensFlag, None, then=TokensFlag.tokens)
    idle_timeout_s: float = idle_timeout_option(60.0)
    max_message_bytes: int = Limits().max_message_bytes
    failpoints: Failpoints | None = None
    local_socket: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.failpoints is not None and not is_loopback(self.host):
            raise UnsafeBind(
                f"{VARIABLE} is set, which makes this server fail: unset it, or listen on 127.0.0.1 only."
            )

    @property
    def max_concurrent_streams(self) -> int:
        """Limit of concurrent calls on one connection; calls above it wait in the client."""
        return SHORT_CALLS
