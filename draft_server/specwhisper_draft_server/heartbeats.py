"""Heartbeats and answers to pings, sent between the responses of a session.

Heartbeats show that the event loop runs; gRPC's own threads answer gRPC's pings even if it hangs. Answers to
a client's pings show how much of its audio has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from specwhisper.tasks import NextItem
from specwhisper.wire import HEARTBEAT_S
from specwhisper.wire.v1 import transcription_pb2 as pb


class Pings:
    """The pings in a client's requests; only the newest needs an answer."""

    def __init__(self) -> None:
        self._newest = 0
        self._has_new = asyncio.Event()

    async def noted(
        self, requests: AsyncIterator[pb.StreamingRecognizeRequest]
    ) -> AsyncGenerator[pb.StreamingRecognizeRequest]:
        """Yield the requests, except those that are only a ping."""
        async for request in requests:
            if request.ping:
                self._newest = request.ping
                self._has_new.set()
            if not request.ping or request.WhichOneof("streaming_request") is not None:
                yield request

    @property
    def has_new(self) -> bool:
        """Whether a ping has no answer."""
        return self._has_new.is_set()

    async def wait(self) -> None:
        await self._has_new.wait()

    def take(self) -> pb.StreamingRecognizeResponse:
        """Return the answer to the newest ping, or a heartbeat if that was answered."""
        ping = self._newest if self.has_new else 0
        self._has_new.clear()
        return pb.StreamingRecognizeResponse(ping=ping, heartbeat=not ping)


async def with_heartbeats(
    responses: AsyncGenerator[pb.StreamingRecognizeResponse], pings: Pings
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Yield responses, with answers to pings and heartbeats in between.

    The first ping is answered before anything else. A heartbeat is sent after :data:`HEARTBEAT_S` without a
    response. None is queued while the client hasn't read the last response.
    """
    if pings.has_new:
        yield pings.take()
    waiting = asyncio.ensure_future(pings.wait())
    try:
        async with aclosing(responses):
            while True:
                async with NextItem(responses) as pending:
                    while not await pending.wait(waiting, timeout_s=HEARTBEAT_S):
                        yield pings.take()
                        if waiting.done():
                            waiting = asyncio.ensure_future(pings.wait())
                    if (response := pending.item) is None:
                        return
                yield response
    finally:
        waiting.cancel()
