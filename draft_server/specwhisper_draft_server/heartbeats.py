"""Send heartbeats to clients: gRPC's own threads answer pings even if the event loop hangs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from specwhisper.rpc.following import Following
from specwhisper.wire import HEARTBEAT_S
from specwhisper.wire.v1 import transcription_pb2 as pb


async def with_heartbeats(
    responses: AsyncGenerator[pb.StreamingRecognizeResponse],
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Yield responses, and a heartbeat whenever there was none for :data:`HEARTBEAT_S`.

    No heartbeat is queued while the client has not read the last response.
    """
    async with aclosing(responses):
        while True:
            async with Following(responses) as following:
                while not await following.is_there(within_s=HEARTBEAT_S):
                    yield pb.StreamingRecognizeResponse(heartbeat=True)
                if (response := following.item) is None:
                    return
            yield response
