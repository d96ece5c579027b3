"""Where and when a session tries again after it has lost its server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specwhisper.errors import RETRY_ELSEWHERE, ServerFull, SpecWhisperError
from specwhisper.rpc.failover import Failover
from specwhisper_client.servers import Connection, Key, Servers


class Attempts:
    """The attempts of one session: each uses the best untried connection.

    Parameters
    ----------
    timeout_s : seconds after the first loss in which connections that were tried are tried again; 0 to try
        each once.

    Attributes
    ----------
    is_retrying : whether an attempt has failed since the last progress.
    """

    def __init__(self, servers: Servers, timeout_s: float = 0.0) -> None:
        self._servers = servers
        self._failover = Failover(timeout_s)
        self._tried: set[Key] = set()
        self._last: Connection | None = None
        self.is_retrying = False

    @property
    def address(self) -> str:
        """Address of the last connection, for messages."""
        return self._servers.address if self._last is None else self._last.address

    @asynccontextmanager
    async def connection(self, *, is_session: bool = True) -> AsyncIterator[Connection]:
        """Use the best untried connection.

        Raises :class:`TargetUnavailable` if no address is known.
        """
        await self._servers.update()
        self._last = self._servers.pick(self._tried)
        async with self._servers.using(self._last, is_session=is_session) as connection:
            yield connection

    async def retry(self, error: SpecWhisperError, *, may_wait: bool = True) -> None:
        """Prepare the next attempt after an error; raise the error if there is none.

        While a connection is untried, the next attempt follows at once. Then it follows after a delay, and
        all connections may be tried again.

        Parameters
        ----------
        may_wait : whether to wait and try again once all connections were tried.
        """
        if not isinstance(error, RETRY_ELSEWHERE):
            raise error
        self.is_retrying = True
        await self._avoid_last(error)
        if self._servers.untried(self._tried):
            return
        self._tried.clear()
        if not may_wait:
            raise error
        await self._failover.wait(error)

    async def _avoid_last(self, error: SpecWhisperError) -> None:
        if (connection := self._last) is None:
            return
        self._tried.add(connection.key)
        self._servers.avoid(connection, error)
        if not isinstance(error, ServerFull):
            await self._servers.update()
        # Other connections to the same address may lead to another server: only those that are connected and
        # not avoided are tried.
        self._tried |= {
            each.key
            for each in self._servers.untried(self._tried)
            if each.key[:2] == connection.key[:2] and not self._servers.is_ready(each)
        }

    def progressed(self) -> None:
        self._tried.clear()
        self._failover.progressed()
        self.is_retrying = False

    def extend(self, timeout_s: float) -> None:
        """Replace the time limit; it starts at the next loss."""
        self._failover = Failover(timeout_s)
