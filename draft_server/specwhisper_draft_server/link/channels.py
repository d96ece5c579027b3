"""Connections to targets: opened when they are needed, closed when nobody will need them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio

from specwhisper.rpc.channels import Credentials, open_channel


class Channels:
    """One connection for each address, for as long as somebody uses it or it is worth keeping.

    Parameters
    ----------
    credentials : how targets are reached, and who asks.
    is_worth_keeping : whether an address that nobody uses now may be asked again.
    """

    def __init__(self, credentials: Credentials, is_worth_keeping: Callable[[str], bool]) -> None:
        self._credentials = credentials
        self._is_worth_keeping = is_worth_keeping
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._num_users: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        """Where there are connections to."""
        return list(self._channels)

    def is_connected(self, address: str) -> bool:
        """Whether there is a connection to an address, which is up."""
        channel = self._channels.get(address)
        return channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY

    @asynccontextmanager
    async def using(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        """Give the connection to an address, which stays open meanwhile."""
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._credentials)
        self._num_users[address] += 1
        try:
            yield self._channels[address]
        finally:
            self._num_users[address] -= 1
            await self._close_useless()

    async def _close_useless(self) -> None:
        self._num_users = +self._num_users
        for address in self.addresses:
            if not (self._num_users[address] or self._is_worth_keeping(address)):
                if (channel := self._channels.pop(address, None)) is not None:  # else another task was first
                    await channel.close()

    async def close(self) -> None:
        """Close them all."""
        for channel in self._channels.values():
            await channel.close()
