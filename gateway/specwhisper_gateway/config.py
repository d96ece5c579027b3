"""Settings of a gateway."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.channels import Credentials, credentials_part
from specwhisper.rpc.serving_options import ListenerOptions
from specwhisper.rpc.tls import ServerTls, TlsFlags
from specwhisper.rpc.tokens import SERVER_TOKEN, Tokens, TokensFlag, read_token
from specwhisper.settings.model_names import served_model_names_option, strict_model_names_option
from specwhisper.settings.setting import OBSERVABILITY, SECURITY, SERVING, offered, part
from specwhisper.settings.shared import port_option
from specwhisper.transcription.speakers import SpeakerModels
from specwhisper.validated import ABOVE_0, Rule, called, number, option, switch, whole
from specwhisper_client.resolving import SERVERS, servers_option
from specwhisper_client.servers import DEFAULT_SERVER

DEFAULT_PORT = 8000
ANY_ORIGIN, ORIGIN = "*", re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9.:\[\]-]+")
API_KEY = "SPECWHISPER_API_KEY"  # the variable that holds a single key
ONLY_KEY = "api-key"  # the name of its callers


@dataclass(frozen=True, kw_only=True)
class KeysFlag(TokensFlag):
    """The flag of the callers' keys."""

    def tokens(self) -> Tokens | None:
        """Read them from a file or the environment."""
        tokens, api_key = super().tokens(), read_token(None, API_KEY)
        if api_key is None:
            return tokens
        if tokens is not None:
            raise InvalidRequest(f"Both tokens and ${API_KEY} are set: move the key into --tokens-file.")
        return Tokens({api_key: ONLY_KEY})


@dataclass(frozen=True, kw_only=True)
class GatewayConfig(ListenerOptions):
    """Settings of ``specwhisper-gateway``."""

    server: str = servers_option(DEFAULT_SERVER, SERVERS, panel=SERVING)
    server_credentials: Credentials = credentials_part("draft servers", "server", SERVER_TOKEN)
    port: int = port_option(DEFAULT_PORT)
    tls: ServerTls | None = part(TlsFlags, None, then=TlsFlags.tls, prefix="http")
    tokens: Tokens | None = part(KeysFlag, None, then=KeysFlag.tokens)
    served_model_names: tuple[str, ...] = served_model_names_option("OpenAI's clients")
    strict_model_names: bool = strict_model_names_option()
    max_upload_bytes: int = whole(
        25 * 1024 * 1024,
        1,
        math.inf,
        "Largest request, in bytes; default: OpenAI's limit.",
        "BYTES",
        panel=SERVING,
    )
    max_audio_seconds: float = number(
        4 * 3600.0,
        ABOVE_0,
        math.inf,
        "Longest recording, in seconds: a few megabytes can hold days of silence.",
        "SECONDS",
        panel=SERVING,
    )
    max_sessions: int = whole(
        100,
        1,
        math.inf,
        "Concurrent transcriptions, of recordings and live, from the upload on.",
        panel=SERVING,
    )
    max_connections: int = whole(  # half of the files that a process may have open on most systems
        500, 1, math.inf, "Concurrent connections, idle ones included.", panel=SERVING
    )
    allow_origins: tuple[str, ...] = option(
        (),
        "Web origin whose pages may use the gateway, such as https://example.org, or *; repeat for more.",
        "ORIGIN",
        flags=("allow-origin",),
        repeats=True,
        rules=(
            Rule(
                lambda origin: origin == ANY_ORIGIN or ORIGIN.fullmatch(origin),
                "write it as browsers do, https://host or https://host:port in lower case, without a path",
            ),
        ),
        panel=SECURITY,
    )
    metrics: bool = switch(True, "Prometheus metrics at /metrics.", panel=OBSERVABILITY)
    extras: Mapping[str, Any] = offered("gateway_settings")

    def __post_init__(self) -> None:
        super().__post_init__()
        if ANY_ORIGIN in self.allow_origins and self.tokens is None:
            raise InvalidRequest(
                f"{called('allow_origins')} is '*', which would let every page use a gateway without "
                "keys: pass --tokens-file, or name the pages' origins."
            )

    @property
    def speakers(self) -> SpeakerModels | None:
        """Finds the speakers of recordings and on the page; ``None`` without models."""
        return self.extras.get("speakers")

    def allows(self, origin: str) -> bool:
        """Return whether pages of this origin may use the gateway."""
        return origin in self.allow_origins or ANY_ORIGIN in self.allow_origins
