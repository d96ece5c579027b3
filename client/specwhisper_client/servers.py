"""Connections to draft servers, over which sessions are spread, and a session's attempts to use them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import random
from time import monotonic

import grpc
import grpc.aio

from specwhisper.errors import RETRY_ELSEWHERE, ServerFull, SpecWhisperError
from specwhisper.rpc.channels import OPEN, Credentials, check_credentials, open_channel
from specwhisper.rpc.failover import Failover
from specwhisper.wire.pacing import SendWindow
from specwhisper_client.resolving import Name, Resolution, read_names

DEFAULT_SERVER = "127.0.0.1:50051"
CONNECTIONS = 4  # to a name's only address: a load balancer may spread them over servers
FULL_S = 1.0  # time to avoid a full server, unless it names one
GONE_S = 5.0  # time to avoid a lost server; then until it is connected again

Key = tuple[Name, str, int]


class Connection:
    """One connection to a draft server, opened on first use.

    Parameters
    ----------
    key : the name that its address was resolved from, the address, and the connection's number among those
        to the same address. A connection that replaces another one has the same key.

    Attributes
    ----------
    address : address of the server, for messages.
    num_calls : calls that use it now.
    last_picked : number of the last session that it was picked for.
    window : limits the audio in flight.
    """

    def __init__(self, key: Key, credentials: Credentials, last_picked: int = 0) -> None:
        self.key = key
        name, resolved, _ = key
        self._peer = resolved if name.is_locator else name.address  # the name in its certificate
        self._resolved = None if resolved == self._peer else resolved
        self.address = self._peer if self._resolved is None else f"{self._peer} ({resolved})"
        self.num_calls = 0
        self.last_picked = last_picked
        self.window = SendWindow()
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._avoided_until_s = 0.0
        self._is_gone = False

    @property
    def channel(self) -> grpc.aio.Channel:
        """The gRPC channel; the first use opens it."""
        if self._channel is None:
            self._channel = open_channel(self._peer, self._credentials, resolved=self._resolved)
        return self._channel

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to a server."""
        return self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    def avoid(self, error: SpecWhisperError) -> None:
        """Prefer other connections while its server is full, or until it is connected again."""
        self._is_gone = not isinstance(error, ServerFull)
        for_s = GONE_S if self._is_gone else error.retry_after_s or FULL_S
        self._avoided_until_s = monotonic() + for_s

    def is_avoided(self) -> bool:
        """Return whether to prefer other connections; reconnect once the time is over."""
        if monotonic() < self._avoided_until_s:
            return True
        if self._is_gone:
            self.channel.get_state(try_to_connect=True)
            self._is_gone = not self.is_connected
        return self._is_gone

    async def close(self) -> None:
        """Close it; calls that still run are cancelled."""
        if self._channel is not None:
            await self._channel.close()


class Servers:
    """Draft servers by one or several names, and connections to them.

    A session takes the connection with the fewest sessions of this object. Among equals it takes the one that
    was unused for longest, and among unused ones the first in a locator's list. A name with several addresses
    gets a connection to each. A name with one address gets :data:`CONNECTIONS`, since a TCP load balancer may
    spread them over several servers.

    Parameters
    ----------
    address : ``HOST:PORT``, or several with commas between. ``locator:///HOST:PORT`` lists draft servers;
        ``dns:///`` before a name changes nothing.
    credentials : encryption, and the token that identifies the caller.
    """

    def __init__(self, address: str, credentials: Credentials = OPEN) -> None:
        self.address = address
        self._credentials = credentials
        self._resolutions = {name: Resolution(name, credentials) for name in read_names(address)}
        for name in self._resolutions:
            check_credentials(name.address, credentials)
        self._connections: dict[Key, Connection] = {}
        self._replaced: set[Connection] = set()  # closed after their last call
        self._num_picked = 0

    async def _update(self) -> None:
        """Look up names whose addresses are old, and keep a connection to each address."""
        for resolution in self._resolutions.values():
            await resolution.update()
        keys = [key for resolution in self._resolutions.values() for key in _keys(resolution)]
        if not keys:
            raise next(each.error for each in self._resolutions.values() if each.error is not None)
        known = self._connections
        self._connections = {key: known.get(key) or Connection(key, self._credentials) for key in keys}
        self._replaced |= {each for key, each in known.items() if key not in self._connections}
        await self._close_replaced()

    def _pick(self, tried: set[Key]) -> Connection:
        """Return the best connection: untried, not avoided, preferred family, least used."""
        preferred = {key[0]: _is_ipv6(key[1]) for key in reversed(self._connections)}  # its first address's
        # A locator lists draft servers in the order in which to try them.
        order = {key: index if key[0].is_locator else 0 for index, key in enumerate(self._connections)}

        def rank(connection: Connection) -> tuple[bool, bool, bool, int, int, int, float]:
            name, address, _ = connection.key
            return (
                connection.key in tried,
                connection.is_avoided(),
                _is_ipv6(address) != preferred[name],
                connection.num_calls,
                connection.last_picked,
                order[connection.key],
                random(),
            )

        return min(self._connections.values(), key=rank)

    @asynccontextmanager
    async def connection(self, tried: set[Key], *, is_session: bool) -> AsyncIterator[Connection]:
        """Use the best connection, which stays open meanwhile.

        Raises :class:`TargetUnavailable` if no address is known.
        """
        await self._update()
        connection = self._pick(tried)
        connection.num_calls += 1
        if is_session:
            self._num_picked += 1
            connection.last_picked = self._num_picked
        try:
            yield connection
        finally:
            connection.num_calls -= 1
            await self._close_replaced()

    async def avoid(self, connection: Connection, error: SpecWhisperError) -> set[Key]:
        """Prefer other connections to one whose server is full or lost; look its name up again if it is lost.

        Return the keys of all connections that are not worth a try: to the same address, those that are
        connected and not avoided may lead to another server.
        """
        name, address, _ = key = connection.key
        if self._connections.get(key) is connection:  # else replaced, or the name lacks its address by now
            is_shared = (name, address, 1) in self._connections
            if is_shared and connection.is_connected and not connection.is_avoided():
                self._replaced.add(connection)
                connection = Connection(key, self._credentials, connection.last_picked)
                self._connections[key] = connection
            connection.avoid(error)
        if not isinstance(error, ServerFull):
            self._resolutions[name].expire()
            await self._update()
        alike = [each for other, each in self._connections.items() if other[:2] == key[:2]]
        return {key, *(each.key for each in alike if not each.is_connected or each.is_avoided())}

    def has_others(self, tried: set[Key]) -> bool:
        """Return whether a connection is not among those tried."""
        return not self._connections.keys() <= tried

    async def _close_replaced(self) -> None:
        unused = {connection for connection in self._replaced if not connection.num_calls}
        self._replaced -= unused
        for connection in unused:
            await connection.close()

    async def close(self) -> None:
        """Close the connections; calls that still run are cancelled."""
        for resolution in self._resolutions.values():
            await resolution.close()
        for connection in (*self._connections.values(), *self._replaced):
            await connection.close()


class Attempts:
    """The attempts of one session: each uses the best untried connection."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._last: Connection | None = None
        self.progressed()

    def progressed(self) -> None:
        """Let the next loss have all connections, and the whole time limit."""
        self._tried: set[Key] = set()
        self._failover: Failover | None = None

    @property
    def address(self) -> str:
        """Address of the last connection, for messages."""
        return self._servers.address if self._last is None else self._last.address

    @property
    def is_retrying(self) -> bool:
        """Whether an attempt has failed since the last progress."""
        return bool(self._tried) or self._failover is not None

    @asynccontextmanager
    async def connection(self, *, is_session: bool = True) -> AsyncIterator[Connection]:
        """Use the best untried connection."""
        async with self._servers.connection(self._tried, is_session=is_session) as self._last:
            yield self._last

    async def retry(self, error: SpecWhisperError, timeout_s: float = 0.0) -> None:
        """Prepare the next attempt after an error; raise the error if there is none.

        While a connection is untried, the next attempt follows at once. Then it follows after a delay, and
        all connections may be tried again.

        Parameters
        ----------
        timeout_s : seconds in which connections that were tried are tried again, since the first of these
            delays after the last progress.
        """
        if not isinstance(error, RETRY_ELSEWHERE):
            raise error
        if self._last is not None:
            self._tried |= await self._servers.avoid(self._last, error)
        if self._servers.has_others(self._tried):
            return
        self._tried = set()
        if not timeout_s:
            raise error
        self._failover = self._failover or Failover(timeout_s)
        await self._failover.wait(error)


def _keys(resolution: Resolution) -> list[Key]:
    """Return the keys of the connections to a name's addresses."""
    name, addresses = resolution.name, resolution.addresses
    keys = []
    for address in addresses:
        num_alike = sum(_is_ipv6(each) == _is_ipv6(address) for each in addresses)
        may_be_balancer = num_alike == 1 and not name.is_locator
        keys += [(name, address, index) for index in range(CONNECTIONS if may_be_balancer else 1)]
    return keys


def _is_ipv6(address: str) -> bool:
    return address.startswith("[")
