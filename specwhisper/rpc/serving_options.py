"""Settings of every server: address, encryption, tokens, limits, drain, metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from specwhisper.errors import UnsafeBind
from specwhisper.rpc.addresses import check_bind, is_loopback
from specwhisper.rpc.tls import ServerTls, server_tls
from specwhisper.rpc.tokens import Tokens, read_tokens
from specwhisper.settings.setting import OBSERVABILITY, SECURITY, SERVING, Made, Setting, Settings
from specwhisper.settings.shared import DrainTimeout, IdleTimeoutFlag, Port
from specwhisper.testing.loading import VARIABLE
from specwhisper.types import Limits

SHORT_CALLS = 100  # unary calls that one connection may have open beside its sessions


@dataclass(frozen=True, kw_only=True)
class ListenerOptions(Settings):
    """Settings that gRPC servers and the gateway share.

    Attributes
    ----------
    tls : encrypts every connection; ``None`` for none.
    tokens : admits callers; ``None`` admits every caller.
    """

    host: Annotated[str, Setting(SERVING, "Address to listen on.", metavar="HOST")] = "127.0.0.1"
    port: Port = 0
    insecure: Annotated[
        bool,
        Setting(
            SERVING,
            "Permission to listen where other machines can connect, without encryption or tokens; only TLS "
            "detects bytes that the network corrupts.",
        ),
    ] = False
    session_timeout_s: Annotated[
        float, Setting(SERVING, "Longest session, in seconds.", metavar="SECONDS", above=0)
    ] = 86_400.0
    drain_timeout_s: DrainTimeout = 30.0
    tls: ServerTls | None = None
    tokens: Tokens | None = None
    max_sessions_per_token: Annotated[
        int | None,
        Setting(
            SECURITY,
            "Concurrent sessions of each name in --tokens-file, or else of each address; default: all, or "
            "all but an eighth if another caller was there within a day.",
            "N",
            min=1,
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        Setting(
            OBSERVABILITY,
            "Port for Prometheus metrics; 0: any free port; default: none.",
            metavar="PORT",
            min=0,
            max=65_535,
        ),
    ] = None
    metrics_host: Annotated[
        str,
        Setting(OBSERVABILITY, "Address of the metrics port; the rules for --host apply.", metavar="HOST"),
    ] = "127.0.0.1"

    def __post_init__(self) -> None:
        super().__post_init__()
        for host in (self.host, self.metrics_host):
            check_bind(host, insecure=self.insecure, tls=self.tls, tokens=self.tokens)

    @property
    def may_describe(self) -> bool:
        """Whether the API may be listed: on this machine only, or to callers with tokens."""
        return is_loopback(self.host) or self.tokens is not None


@dataclass(frozen=True, kw_only=True)
class ServingOptions(ListenerOptions):
    """How a gRPC server listens and stops.

    Attributes
    ----------
    failpoints : :class:`specwhisper.testing.failpoints.Failpoints`, in tests.
    local_socket : a path where the server listens as well, unencrypted: for calls of its own process, which
        has neither a certificate nor a token. Only its user may enter the folder.
    """

    tls: Annotated[ServerTls | None, Made(server_tls, prefix="grpc")] = None
    tokens: Annotated[Tokens | None, Made(read_tokens)] = None
    idle_timeout_s: IdleTimeoutFlag = 60.0
    max_message_bytes: int = Limits().max_message_bytes
    failpoints: Any = None
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
