"""Signs of life to clients: gRPC's threads answer pings even where the event loop hangs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from specwhisper.rpc.following import Following
from specwhisper.wire import HEARTBEAT_S
from specwhisper.wire.v1 import transcription_pb2 as pb


async def with_heartbeats(
    answers: AsyncGenerator[pb.StreamingRecognizeResponse],
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Give a stream's answers, and a sign of life whenever there was none for a while; then close them.

    Nothing is sent beside an answer that its client does not take.
    """
    async with aclosing(answers):
        while True:
            async with Following(answers) as following:
                while not await following.is_there(within_s=HEARTBEAT_S):
                    yield pb.StreamingRecognizeResponse(heartbeat=True)
                if (response := following.item) is None:
                    return
            yield response
