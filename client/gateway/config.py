"""What a gateway can be told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from client.api import DEFAULT_SERVER
from specwhisper.errors import InvalidRequest
from specwhisper.wire.addresses import check_bind, split_address

DEFAULT_PORT = 8000
MAX_UPLOAD_BYTES = 25 * 1024 * 1024  # OpenAI's own limit
MAX_AUDIO_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of a gateway, checked when they are made.

    Attributes
    ----------
    server : ``HOST:PORT`` of the draft server.
    host, port : where to listen; port 0 takes a free one.
    insecure : allow a host that other machines can reach.
    max_upload_bytes : largest body of a request: the recording and the few fields beside it.
    max_audio_s : longest recording, in seconds: a few megabytes can hold days of silence.
    api_key : what requests to /v1 must carry as their bearer token; ``None`` lets everybody in.
    metrics : whether /metrics is served.
    drain_timeout_s : how long open requests may go on after a stop signal.
    """

    server: str = DEFAULT_SERVER
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    insecure: bool = False
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    max_audio_s: float = MAX_AUDIO_S
    api_key: str | None = field(default=None, repr=False)
    metrics: bool = True
    drain_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        split_address(self.server)
        check_bind(self.host, insecure=self.insecure, asks_who=self.api_key is not None)
        if self.max_upload_bytes < 1:
            raise InvalidRequest(f"--max-upload-bytes is {self.max_upload_bytes}: it must be at least 1.")
        if not self.max_audio_s > 0:
            raise InvalidRequest(f"--max-audio-seconds is {self.max_audio_s}: it must be above 0.")
        if self.api_key is not None and not re.fullmatch(r"[!-~]+", self.api_key):
            raise InvalidRequest(
                "--api-key must be ASCII without spaces, as headers carry it; without one all are let in."
            )
        if not self.drain_timeout_s >= 0:
            raise InvalidRequest(f"--drain-timeout is {self.drain_timeout_s}: it must be 0 or more.")
