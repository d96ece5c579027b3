"""A running gateway, and the limits of its transcriptions: sessions, time, a client that stays."""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import timeout_at
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from fastapi import Request
from starlette.requests import HTTPConnection

from specwhisper.audio.turns import decoding_for
from specwhisper.errors import SessionExpired, SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.settings.model_names import ModelNames
from specwhisper.tasks import running
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.updates import ServerInfo
from specwhisper_gateway.access_log import caller_of
from specwhisper_gateway.config import GatewayConfig
from specwhisper_gateway.errors import ClientGone, InvalidField
from specwhisper_gateway.metrics import GatewayMetrics

if TYPE_CHECKING:
    from specwhisper_gateway.realtime.secrets import ClientSecrets

MAX_AGE_S = 2.0  # age of an answer that callers share
ENDS_AT = "ends_at_s"

T = TypeVar("T")


class CachedAnswer(Generic[T]):
    """Shares one answer, or one error, between all callers within two seconds.

    Parameters
    ----------
    ask : returns a new answer; it is never called twice at once.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking = asyncio.Lock()
        self._answer: T | SpecWhisperError | None = None
        self._good_until_s = -math.inf

    async def get(self) -> T:
        async with self._asking:
            if time.monotonic() >= self._good_until_s:
                try:
                    self._answer = await self._ask()
                except SpecWhisperError as error:
                    self._answer = error
                self._good_until_s = time.monotonic() + MAX_AGE_S
            if isinstance(self._answer, SpecWhisperError):
                raise self._answer
            return cast(T, self._answer)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway.

    Attributes
    ----------
    client : the connection to the draft server.
    limiter : limits concurrent transcriptions.
    health : the draft server's description of itself, at most a few seconds old.
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

    async def check_languages(self, options: DecodingOptions, param: str, choice: str = "") -> None:
        """Refuse languages that the target doesn't have.

        If no target answers, none is refused: the target refuses them itself.
        """
        asked = options.languages or tuple(filter(None, (options.language,)))
        try:
            known = (await self.health.get()).languages if asked else ()
        except SpecWhisperError:
            return
        for language in asked:
            if language not in known:
                choice = choice or f"choose from {', '.join(known)}."
                raise InvalidField(f"The target has no language '{language}': {choice}", param)


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


@asynccontextmanager
async def within_time(connection: HTTPConnection) -> AsyncGenerator[None]:
    """Raise :class:`SessionExpired` when the time since the first use is over."""
    max_s = gateway_of(connection).config.session_timeout_s
    now_s = asyncio.get_running_loop().time()
    limit = timeout_at(connection.scope["state"].setdefault(ENDS_AT, now_s + max_s))
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        what = "session" if connection.scope["type"] == "websocket" else "request"
        raise SessionExpired(
            f"This {what} has lasted {max_s:g} s, the limit of this gateway: continue in another one."
        ) from error


async def cancel_on_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Wait for work, and cancel it when the connection closes.

    The request's body must have been read.
    """
    async with running(work, _disconnected(request)) as (working, disconnected):
        await asyncio.wait((working, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone("The client disconnected before it was answered.")
        result: T = working.result()
        return result


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
