"""How long a target may take: to let this server connect, and to answer once it has."""

from __future__ import annotations

import asyncio

import grpc.aio
from grpc import ChannelConnectivity

from specwhisper.errors import TargetUnavailable

# What gRPC gives an attempt to connect, which takes two round trips, or four where it is encrypted.
ATTEMPT_S = 20.0
# For the answer to a call, an attempt to connect before it included.
ANSWER_S = 30.0


async def wait_connected(channel: grpc.aio.Channel, address: str, refused_s: float) -> None:
    """Wait until a channel to a target is connected.

    A target that is not there refuses every attempt at once, and is given up after a while. An attempt under
    way is waited for: the target may only be far away.

    Parameters
    ----------
    refused_s : for how long attempts may fail, in seconds.

    Raises
    ------
    TargetUnavailable
        where it is not connected by then.
    """
    clock = asyncio.get_running_loop().time
    begun_s = clock()
    while (state := channel.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
        is_under_way = state is ChannelConnectivity.CONNECTING
        within_s = max(refused_s, ATTEMPT_S) if is_under_way else refused_s
        try:
            async with asyncio.timeout(max(0.0, begun_s + within_s - clock())):
                await channel.wait_for_state_change(state)
        except TimeoutError:
            raise TargetUnavailable(
                f"No target server answered at {address} within {within_s:g} s; is it running?"
            ) from None
