"""Draft servers that a client may use: one after the other, as they are lost."""

from __future__ import annotations

import grpc.aio

from specwhisper.wire.channels import OPEN, Credentials, open_channel


class Servers:
    """Connections to draft servers, each opened on first use.

    Parameters
    ----------
    addresses : ``HOST:PORT``, or several with commas between.
    credentials : how they are reached, and who asks.
    """

    def __init__(self, addresses: str, credentials: Credentials = OPEN) -> None:
        self._addresses = list(dict.fromkeys(address.strip() for address in addresses.split(",")))
        self._channels = [open_channel(address, credentials) for address in self._addresses]
        self._current = 0

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def address(self) -> str:
        """The one that is used now."""
        return self._addresses[self._current]

    @property
    def channel(self) -> grpc.aio.Channel:
        """The connection to it."""
        return self._channels[self._current]

    def leave(self, address: str) -> None:
        """Use another one than that which was lost, unless somebody else has seen to it."""
        if address == self.address:
            self._current = (self._current + 1) % len(self)

    async def close(self) -> None:
        """Close the connections; calls that still run are cancelled."""
        for channel in self._channels:
            await channel.close()
