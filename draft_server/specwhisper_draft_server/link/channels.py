"""Connections to targets.

They are opened on first use and closed when they are no longer needed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio
from grpc import ChannelConnectivity

from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.channels import Credentials, open_channel
from specwhisper.wire.pacing import SendWindow
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.candidate_channel import CandidateChannel

# gRPC's limit for an attempt to connect, which takes two round trips, or four with TLS.
ATTEMPT_S = 20.0
# Time limit of a unary call, including an attempt to connect.
ANSWER_S = 30.0


class Channels:
    """One channel for each address, kept while it is used or worth keeping.

    Parameters
    ----------
    credentials : encryption and token for targets.
    is_worth_keeping : whether an unused address may be asked again.
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
        return list(self._channels)

    def is_connected(self, address: str) -> bool:
        channel = self._channels.get(address)
        return channel is not None and channel.get_state() is ChannelConnectivity.READY

    def window(self, address: str) -> SendWindow:
        return self._windows[address]

    def candidates(self, address: str, stub: verification_pb2_grpc.VerificationStub) -> CandidateChannel:
        call = self._candidates.get(address)
        if call is None or call.is_over:
            call = self._candidates[address] = CandidateChannel(address, stub)
        return call

    @asynccontextmanager
    async def using(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
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
        for channel in self._channels.values():
            await channel.close()


async def wait_connected(channel: grpc.aio.Channel, address: str, refused_s: float) -> None:
    """Wait until a channel to a target is connected.

    A host without a target refuses every attempt at once, so this fails after ``refused_s`` seconds. An
    attempt in progress gets the time that gRPC allows, since the target may just be far away.

    ``refused_s``: time in seconds in which attempts may fail.

    Raise :class:`TargetUnavailable` if it is not connected in time.
    """
    clock = asyncio.get_running_loop().time
    begun_s = clock()
    while (state := channel.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
        is_connecting = state is ChannelConnectivity.CONNECTING
        within_s = max(refused_s, ATTEMPT_S) if is_connecting else refused_s
        try:
            async with asyncio.timeout(max(0.0, begun_s + within_s - clock())):
                await channel.wait_for_state_change(state)
        except TimeoutError:
            raise TargetUnavailable(
                f"No target server answered at {address} within {within_s:g} s; is it running?"
            ) from None
