"""What a gateway can be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.addresses import check_bind, is_loopback
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Tokens, read_token, read_tokens
from specwhisper_client.api import DEFAULT_SERVER
from specwhisper_client.resolving import read_names

DEFAULT_PORT = 8000
MAX_UPLOAD_BYTES = 25 * 1024 * 1024  # OpenAI's own limit
MAX_AUDIO_S = 4 * 3600.0
MAX_SESSIONS = 100
MAX_CONNECTIONS = 500  # half of the files that a process may have open on most systems
ANY_ORIGIN, ORIGIN = "*", re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9.:\[\]-]+")
API_KEY = "SPECWHISPER_API_KEY"  # the variable that holds a single key
ONLY_KEY = "api-key"  # the name of whoever has it


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of a gateway, checked when they are made.

    Attributes
    ----------
    server : ``HOST:PORT`` of the draft server, or several with commas between.
    server_credentials : how they are reached, and who asks.
    host, port : where to listen; port 0 takes a free one.
    insecure : allow a host that other machines can reach, without encryption or keys.
    tls : encrypts every connection.
    tokens : who may ask, and by which key; ``None`` lets everybody in.
    max_upload_bytes : largest body of a request: the recording and the few fields beside it.
    max_audio_s : longest recording, in seconds: a few megabytes can hold days of silence.
    max_sessions : most transcriptions at once, of recordings and live, from the upload on.
    max_sessions_per_token : most of them by callers of one name; ``None`` lets one have all.
    max_session_s : how long one of them may last, with its upload and its answer.
    max_connections : most connections at once, idle ones and unfinished TLS handshakes too.
    allow_origins : pages of other sites that may use the gateway, as ``https://host``; ``*`` for all.
    metrics : whether figures are served.
    metrics_host, metrics_port : where they are served apart, under the same protection; without a port they
        are beside the rest.
    drain_timeout_s : how long open requests may go on after a stop signal.
    """

    server: str = DEFAULT_SERVER
    server_credentials: Credentials = OPEN
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    insecure: bool = False
    tls: ServerTls | None = None
    tokens: Tokens | None = None
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    max_audio_s: float = MAX_AUDIO_S
    max_sessions: int = MAX_SESSIONS
    max_sessions_per_token: int | None = None
    max_session_s: float = 86_400.0
    max_connections: int = MAX_CONNECTIONS
    allow_origins: tuple[str, ...] = ()
    metrics: bool = True
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    drain_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        read_names(self.server)
        for host in (self.host, self.metrics_host):
            check_bind(host, insecure=self.insecure, tls=self.tls, tokens=self.tokens)
        if self.max_upload_bytes < 1:
            raise InvalidRequest(f"--max-upload-bytes is {self.max_upload_bytes}: it must be at least 1.")
        if not self.max_session_s > 0:
            raise InvalidRequest(f"--session-timeout is {self.max_session_s}: it must be above 0.")
        if not self.max_audio_s > 0:
            raise InvalidRequest(f"--max-audio-seconds is {self.max_audio_s}: it must be above 0.")
        for name in ("max_sessions", "max_sessions_per_token", "max_connections"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise InvalidRequest(f"--{name.replace('_', '-')} is {number}: it must be at least 1.")
        if self.max_sessions_per_token is not None and self.tokens is None:
            raise InvalidRequest("--max-sessions-per-token needs keys: give --tokens-file.")
        for origin in self.allow_origins:
            if origin == ANY_ORIGIN and self.tokens is None:
                raise InvalidRequest(
                    "--allow-origin '*' would let every page use a gateway that asks for no key: give "
                    "--tokens-file, or name the pages' origins."
                )
            if origin != ANY_ORIGIN and not ORIGIN.fullmatch(origin):
                raise InvalidRequest(
                    f"--allow-origin is {origin!r}: write it as browsers do, https://host or "
                    "https://host:port in lower case, without a path."
                )
        if not self.drain_timeout_s >= 0:
            raise InvalidRequest(f"--drain-timeout is {self.drain_timeout_s}: it must be 0 or more.")

    def allows(self, origin: str) -> bool:
        """Return whether pages of this origin may use the gateway."""
        return origin in self.allow_origins or ANY_ORIGIN in self.allow_origins

    @property
    def may_describe(self) -> bool:
        """Whether the API and the figures are told: to this machine, or to whoever has a key."""
        return is_loopback(self.host) or self.tokens is not None


def keys(tokens_file: Path | None) -> Tokens | None:
    """Read who may ask: several, of a file or the environment, or ``$SPECWHISPER_API_KEY`` alone."""
    tokens, api_key = read_tokens(tokens_file), read_token(None, API_KEY)
    if api_key is None:
        return tokens
    if tokens is not None:
        raise InvalidRequest(f"There are tokens and ${API_KEY}: write it into --tokens-file as well.")
    return Tokens({api_key: ONLY_KEY})
