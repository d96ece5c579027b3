"""State that all requests to a gateway share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache

from starlette.requests import HTTPConnection

from specwhisper.audio.turns import decoding_for
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.settings.model_names import ModelNames
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.updates import ServerInfo
from specwhisper_gateway.access_log import caller_of
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.health import CachedAnswer
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.realtime.secrets import ClientSecrets


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway.

    Attributes
    ----------
    client : the connection to the draft server.
    limiter : limits concurrent transcriptions.
    health : the draft server's description of itself, at most a few seconds old.
    model_names : the names by which requests may call the target.
    secrets : those that open realtime sessions.
    started_s : Unix time when it started.
    """

    config: GatewayConfig
    client: TranscriptionClient
    metrics: GatewayMetrics
    limiter: SessionLimiter
    health: CachedAnswer[ServerInfo]
    model_names: ModelNames
    secrets: ClientSecrets
    started_s: int = field(default_factory=lambda: int(time.time()))


def gateway_of(connection: HTTPConnection) -> Gateway:
    gateway: Gateway = connection.app.state.gateway
    return gateway


TakeSession = Callable[[], None]


async def admit_later(connection: HTTPConnection) -> AsyncIterator[TakeSession]:
    """Yield what counts a WebSocket as a session, which idle ones are not.

    One that is above a limit is refused at once, or by :class:`ServerFull` when it wants a session.
    """
    limiter, caller = gateway_of(connection).limiter, caller_of(connection)
    limiter.check(caller)
    with ExitStack() as held:
        yield cache(lambda: held.enter_context(limiter.admit(caller)))


async def admit(connection: HTTPConnection) -> AsyncIterator[None]:
    decoding_for.set(caller_of(connection))
    with gateway_of(connection).limiter.admit(caller_of(connection)):
        yield
