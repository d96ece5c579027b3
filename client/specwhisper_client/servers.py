"""Connections to draft servers, over which sessions are spread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import random
from time import monotonic

import grpc
import grpc.aio

from specwhisper.errors import ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.rpc.channels import OPEN, Credentials, check_credentials, open_channel
from specwhisper.wire.pacing import SendWindow
from specwhisper_client.resolving import Name, Resolution, Resolve, read_names, resolver

DEFAULT_SERVER = "127.0.0.1:50051"
CONNECTIONS = 4  # to a name's only address: a load balancer may spread them over servers
FULL_S = 1.0  # time to avoid a full server, unless it names one
GONE_S = 5.0  # time to avoid a lost server; then until it is connected again

Key = tuple[Name, str, int]


class Connection:
    """One connection to a draft server, opened on first use.

    Parameters
    ----------
    name : the name that its address was resolved from.
    address : the address to connect to.
    index : its number among the connections to the same address.

    Attributes
    ----------
    key : name, address and index: equal for a connection and the one that replaces it.
    num_calls : calls that use it now.
    last_picked : number of the last session that it was picked for.
    window : limits the audio in flight.
    """

    def __init__(self, name: Name, address: str, index: int, credentials: Credentials) -> None:
        self.key: Key = name, address, index
        self.name = name
        self.num_calls = 0
        self.last_picked = 0
        self.window = SendWindow()
        self._peer = address if name.is_locator else name.address  # the name in its certificate
        self._address = address
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._avoided_until_s = 0.0
        self._is_gone = False

    @property
    def address(self) -> str:
        """Address of the server, for messages."""
        return self._peer if self._address == self._peer else f"{self._peer} ({self._address})"

    @property
    def channel(self) -> grpc.aio.Channel:
        """The gRPC channel; the first use opens it."""
        if self._channel is None:
            resolved = self._address if self._address != self._peer else None
            self._channel = open_channel(self._peer, self._credentials, resolved=resolved)
        return self._channel

    @property
    def is_open(self) -> bool:
        """Whether the channel was opened."""
        return self._channel is not None

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to a server."""
        return self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    def replacement(self) -> Connection:
        """Return another connection to the same address, not opened yet."""
        _, address, index = self.key
        made = Connection(self.name, address, index, self._credentials)
        made.last_picked = self.last_picked
        return made

    def avoid(self, until_s: float, *, is_gone: bool) -> None:
        """Prefer other connections until a time, or until it is connected again."""
        self._avoided_until_s, self._is_gone = until_s, is_gone

    def is_avoided(self, now_s: float) -> bool:
        """Return whether to prefer other connections; reconnect once the time is over."""
        if now_s < self._avoided_until_s:
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
    addresses : ``HOST:PORT``, or several with commas between. ``locator:///HOST:PORT`` lists
        draft servers; ``dns:///`` before a name changes nothing.
    credentials : encryption, and the token that identifies the caller.
    resolve : returns the function that looks up a name's addresses.
    """

    def __init__(
        self,
        addresses: str,
        credentials: Credentials = OPEN,
        *,
        resolve: Callable[[Name, Credentials], Resolve | None] = resolver,
    ) -> None:
        self._addresses = addresses
        self._credentials = credentials
        self._resolutions = {
            name: Resolution(name, resolve(name, credentials)) for name in read_names(addresses)
        }
        for name in self._resolutions:
            check_credentials(name.address, credentials)
        self._connections: dict[Key, Connection] = {}
        self._replaced: set[Connection] = set()  # closed after their last call
        self._num_picked = 0

    @property
    def address(self) -> str:
        """All addresses, as the caller wrote them."""
        return self._addresses

    @property
    def is_one(self) -> bool:
        """Whether all connections lead to one address."""
        return len({address for _, address, _ in self._connections}) == 1

    async def update(self) -> None:
        """Look up names whose addresses are old, and keep a connection to each address."""
        for resolution in self._resolutions.values():
            await resolution.update()
        wanted: dict[Key, Connection] = {}
        for name, resolution in self._resolutions.items():
            addresses = resolution.addresses
            for address in addresses:
                num_alike = sum(_is_ipv6(each) == _is_ipv6(address) for each in addresses)
                may_be_balancer = num_alike == 1 and not name.is_locator
                for index in range(CONNECTIONS if may_be_balancer else 1):
                    made = Connection(name, address, index, self._credentials)
                    wanted[made.key] = self._connections.get(made.key, made)
        if not wanted:
            errors = [
                resolution.error for resolution in self._resolutions.values() if resolution.error is not None
            ]
            raise (
                errors[0] if errors else TargetUnavailable(f"There is no draft server at {self._addresses}.")
            )
        self._replaced |= {each for key, each in self._connections.items() if key not in wanted}
        self._connections = wanted
        await self._close_replaced()

    def pick(self, tried: set[Key]) -> Connection:
        """Return the best connection: untried, not avoided, preferred family, least used."""
        now_s = monotonic()
        preferred = {key[0]: _is_ipv6(key[1]) for key in reversed(self._connections)}  # its first address's
        # A locator lists draft servers in the order in which to try them.
        order = {key: index if key[0].is_locator else 0 for index, key in enumerate(self._connections)}

        def rank(connection: Connection) -> tuple[bool, bool, bool, int, int, int, bool, float]:
            name, address, _ = connection.key
            return (
                connection.key in tried,
                connection.is_avoided(now_s),
                _is_ipv6(address) != preferred[name],
                connection.num_calls,
                connection.last_picked,
                order[connection.key],
                not connection.is_open,
                random(),
            )

        return min(self._connections.values(), key=rank)

    @asynccontextmanager
    async def using(self, connection: Connection, *, is_session: bool) -> AsyncIterator[Connection]:
        """Count a call on a connection, which stays open meanwhile."""
        connection.num_calls += 1
        if is_session:
            self._num_picked += 1
            connection.last_picked = self._num_picked
        try:
            yield connection
        finally:
            connection.num_calls -= 1
            await self._close_replaced()

    def avoid(self, connection: Connection, error: SpecWhisperError) -> None:
        """Prefer other connections to one whose server is full or lost."""
        if self._connections.get(connection.key) is not connection:
            return  # it was replaced, or the name no longer has its address
        is_full, now_s = isinstance(error, ServerFull), monotonic()
        if not is_full:
            self._resolutions[connection.name].expire()
        is_shared = (*connection.key[:2], 1) in self._connections
        if is_shared and connection.is_connected and not connection.is_avoided(now_s):
            self._replaced.add(connection)
            connection = self._connections[connection.key] = connection.replacement()
        for_s = (error.retry_after_s or FULL_S) if is_full else GONE_S
        connection.avoid(now_s + for_s, is_gone=not is_full)

    def untried(self, tried: set[Key]) -> list[Connection]:
        """Return the connections that are not among those tried."""
        return [each for key, each in self._connections.items() if key not in tried]

    def is_ready(self, connection: Connection) -> bool:
        """Return whether the connection has a server that is not avoided."""
        return connection.is_connected and not connection.is_avoided(monotonic())

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


def _is_ipv6(address: str) -> bool:
    return address.startswith("[")
