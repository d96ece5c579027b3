"""Time limits for connecting to a target and for its answers."""

from __future__ import annotations

import asyncio

import grpc.aio
from grpc import ChannelConnectivity

from specwhisper.errors import TargetUnavailable

# gRPC's own limit for an attempt to connect, which takes two round trips, or four with TLS.
ATTEMPT_S = 20.0
# For the answer to a unary call, including an attempt to connect.
ANSWER_S = 30.0


async def wait_connected(channel: grpc.aio.Channel, address: str, refused_s: float) -> None:
    """Wait until a channel to a target is connected.

    A host without a target refuses every attempt at once: after ``refused_s`` seconds this fails. An attempt
    that is in progress gets the time that gRPC allows it, since the target may just be far away.

    Parameters
    ----------
    refused_s : for how long attempts may fail, in seconds.

    Raises
    ------
    TargetUnavailable
        if it is not connected in time.
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
