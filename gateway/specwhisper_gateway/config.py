"""Settings of a gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from specwhisper.errors import InvalidRequest
from specwhisper.rpc.channels import OPEN, Credentials, client_credentials
from specwhisper.rpc.serving_options import ListenerOptions
from specwhisper.rpc.tls import ServerTls, server_tls
from specwhisper.rpc.tokens import SERVER_TOKEN, Tokens, TokensFlag, read_token, read_tokens
from specwhisper.settings.model_names import StrictModelNames, served_model_names
from specwhisper.settings.setting import OBSERVABILITY, SECURITY, SERVING, Made, Offered, Setting
from specwhisper.settings.shared import Port
from specwhisper.transcription.speakers import SpeakerModels
from specwhisper_client.resolving import read_names
from specwhisper_client.servers import DEFAULT_SERVER

DEFAULT_PORT = 8000
MAX_UPLOAD_BYTES = 25 * 1024 * 1024  # OpenAI's own limit
MAX_AUDIO_S = 4 * 3600.0
MAX_SESSIONS = 100
MAX_CONNECTIONS = 500  # half of the files that a process may have open on most systems
ANY_ORIGIN, ORIGIN = "*", re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9.:\[\]-]+")
API_KEY = "SPECWHISPER_API_KEY"  # the variable that holds a single key
ONLY_KEY = "api-key"  # the name of its callers


def allowed_origins(
    allow_origin: Annotated[
        list[str] | None,
        Setting(
            SECURITY,
            "Web origin whose pages may use the gateway, such as https://example.org, or *; repeat for more.",
            metavar="ORIGIN",
        ),
    ] = None,
) -> tuple[str, ...]:
    """Return the origins of a repeated flag."""
    return tuple(allow_origin or ())


def keys(tokens_file: TokensFlag = None) -> Tokens | None:
    """Read the callers' keys from a file or the environment."""
    tokens, api_key = read_tokens(tokens_file), read_token(None, API_KEY)
    if api_key is None:
        return tokens
    if tokens is not None:
        raise InvalidRequest(f"Both tokens and ${API_KEY} are set: move the key into --tokens-file.")
    return Tokens({api_key: ONLY_KEY})


@dataclass(frozen=True, kw_only=True)
class GatewayConfig(ListenerOptions):
    """Settings of ``specwhisper-gateway``.

    Attributes
    ----------
    server_credentials : for the connections to draft servers.
    allow_origins : pages of other sites that may use the gateway, as ``https://host``; ``*`` for all.
    extras : settings of packages beside the core, by the names of their entry points.
    """

    server: Annotated[
        str,
        Setting(
            SERVING,
            "Addresses of draft servers, or locator:///HOST:PORT of their locator; sessions are spread over "
            "all.",
            metavar="HOST:PORT,...",
        ),
    ] = DEFAULT_SERVER
    server_credentials: Annotated[
        Credentials,
        Made(
            partial(client_credentials, variable=SERVER_TOKEN),
            prefix="server",
            words={"peer": "draft servers", "variable": f"${SERVER_TOKEN}"},
        ),
    ] = OPEN
    port: Port = DEFAULT_PORT
    tls: Annotated[ServerTls | None, Made(partial(server_tls, protocol="http"), prefix="http")] = None
    tokens: Annotated[Tokens | None, Made(keys)] = None
    served_model_names: Annotated[
        tuple[str, ...], Made(served_model_names, words={"clients": "OpenAI's clients"})
    ] = ()
    strict_model_names: StrictModelNames = False
    max_upload_bytes: Annotated[
        int, Setting(SERVING, "Largest request, in bytes; default: OpenAI's limit.", "BYTES", min=1)
    ] = MAX_UPLOAD_BYTES
    max_audio_seconds: Annotated[
        float,
        Setting(
            SERVING,
            "Longest recording, in seconds: a few megabytes can hold days of silence.",
            metavar="SECONDS",
            above=0,
        ),
    ] = MAX_AUDIO_S
    max_sessions: Annotated[
        int,
        Setting(
            SERVING, "Concurrent transcriptions, of recordings and live, from the upload on.", "N", min=1
        ),
    ] = MAX_SESSIONS
    max_connections: Annotated[
        int,
        Setting(SERVING, "Concurrent connections, idle ones included.", metavar="N", min=1),
    ] = MAX_CONNECTIONS
    allow_origins: Annotated[tuple[str, ...], Made(allowed_origins)] = ()
    metrics: Annotated[bool, Setting(OBSERVABILITY, "Prometheus metrics at /metrics.")] = True
    extras: Annotated[Mapping[str, Any], Offered("gateway_settings")] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        read_names(self.server)
        for origin in self.allow_origins:
            if origin == ANY_ORIGIN and self.tokens is None:
                raise InvalidRequest(
                    "--allow-origin '*' would let every page use a gateway without keys: pass "
                    "--tokens-file, or name the pages' origins."
                )
            if origin != ANY_ORIGIN and not ORIGIN.fullmatch(origin):
                raise InvalidRequest(
                    f"--allow-origin is {origin!r}: write it as browsers do, https://host or "
                    "https://host:port in lower case, without a path."
                )

    @property
    def speakers(self) -> SpeakerModels | None:
        """Finds the speakers of recordings and on the page; ``None`` without models."""
        return self.extras.get("speakers")

    def allows(self, origin: str) -> bool:
        """Return whether pages of this origin may use the gateway."""
        return origin in self.allow_origins or ANY_ORIGIN in self.allow_origins
