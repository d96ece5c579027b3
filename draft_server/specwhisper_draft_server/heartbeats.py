"""Heartbeats to clients.

They show that the event loop runs: gRPC's own threads answer pings even if it hangs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from specwhisper.rpc.next_item import NextItem
from specwhisper.wire import HEARTBEAT_S
from specwhisper.wire.v1 import transcription_pb2 as pb


async def with_heartbeats(
    responses: AsyncGenerator[pb.StreamingRecognizeResponse],
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Yield responses, and heartbeats in between.

    A heartbeat is sent whenever there was no response for :data:`HEARTBEAT_S`. No heartbeat is queued while
    the client has not read the last response.
    """
    async with aclosing(responses):
        while True:
            async with NextItem(responses) as pending:
                while not await pending.wait(timeout_s=HEARTBEAT_S):
                    yield pb.StreamingRecognizeResponse(heartbeat=True)
                if (response := pending.item) is None:
                    return
            yield response
