"""What all requests to a gateway share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from client.api import TranscriptionClient
from client.gateway.config import GatewayConfig
from client.gateway.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway.

    Attributes
    ----------
    client : the connection to the draft server.
    started_s : Unix time of its start.
    """

    config: GatewayConfig
    client: TranscriptionClient
    metrics: Metrics
    started_s: int = field(default_factory=lambda: int(time.time()))


def gateway_of(connection: HTTPConnection) -> Gateway:
    """Give the gateway that a request or a WebSocket has come to."""
    gateway: Gateway = connection.app.state.gateway
    return gateway
