"""Signs of life to clients: gRPC's threads answer pings even where the event loop hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

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
            following = asyncio.ensure_future(anext(answers, None))
            try:
                while not (await asyncio.wait((following,), timeout=HEARTBEAT_S))[0]:
                    yield pb.StreamingRecognizeResponse(heartbeat=True)
                if (response := following.result()) is None:
                    return
            finally:  # nobody may close what is still running
                if not following.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                del following  # its error knows this frame, and what is left in a circle stays for a while
            yield response
