"""Connections to targets.

They are opened on first use and closed when they are no longer needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio

from specwhisper.rpc.channels import Credentials, open_channel
from specwhisper.wire.pacing import SendWindow
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.candidate_channel import CandidateChannel


class Channels:
    """One channel for each address, kept while it is in use or worth keeping.

    Parameters
    ----------
    credentials : of this server, for targets.
    is_worth_keeping : whether an address without users may be asked again.
    """

    def __init__(self, credentials: Credentials, is_worth_keeping: Callable[[str], bool]) -> None:
        self._credentials = credentials
        self._is_worth_keeping = is_worth_keeping
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._windows: dict[str, SendWindow] = {}
        self._candidates: dict[str, CandidateChannel] = {}
        self._num_users: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        """Addresses with an open channel."""
        return list(self._channels)

    def is_connected(self, address: str) -> bool:
        """Return whether there is a channel to an address, and it is connected."""
        channel = self._channels.get(address)
        return channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY

    def window(self, address: str) -> SendWindow:
        """Return what limits the audio on the channel to an address."""
        return self._windows[address]

    def candidates(self, address: str, stub: verification_pb2_grpc.VerificationStub) -> CandidateChannel:
        """Return the call that the sessions at an address share; a new one if none is open."""
        call = self._candidates.get(address)
        if call is None or call.is_over:
            call = self._candidates[address] = CandidateChannel(address, stub)
        return call

    @asynccontextmanager
    async def using(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        """Keep the channel to an address open, and yield it."""
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._credentials)
            self._windows[address] = SendWindow()
        self._num_users[address] += 1
        try:
            yield self._channels[address]
        finally:
            self._num_users[address] -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        self._num_users = +self._num_users
        for address in self.addresses:
            if not (self._num_users[address] or self._is_worth_keeping(address)):
                self._candidates.pop(address, None)
                if (channel := self._channels.pop(address, None)) is not None:  # else another task closes it
                    await channel.close()

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
