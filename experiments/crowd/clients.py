"""Clients without a draft server around them: each recites over one gRPC stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc.aio

from experiments.crowd.in_process import MODE, OPTIONS
from experiments.crowd.recited import RECITED, RecitedDraft
from specwhisper.types import AudioChunk, Candidates, ToTarget
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper.wire.versions import LINK
from specwhisper_target_server.event_queue import event_of


class Generator:
    """Sessions on one server, as many as it has slots.

    Attributes
    ----------
    num_messages : sent and received so far.
    """

    def __init__(self, address: str, num_sessions: int) -> None:
        self.num_messages = 0
        self._channel = grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        stub = verification_pb2_grpc.VerificationStub(self._channel)
        self._tasks = [asyncio.create_task(self._run(stub, number)) for number in range(num_sessions)]

    async def run(self, duration_s: float) -> None:
        """Wait; raise the error of a session that has ended."""
        done, _ = await asyncio.wait(self._tasks, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def close(self) -> None:
        """End the sessions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _run(self, stub: verification_pb2_grpc.VerificationStub, number: int) -> None:
        draft, outbox = RecitedDraft(number), asyncio.Queue[pb.VerifyRequest]()
        hello = pb.Hello(
            protocol_version=LINK.version,
            oldest_protocol_version=LINK.oldest,
            vocabulary_digest=RECITED.digest,
            mode=codec.mode_to_proto(MODE),
            options=codec.decoding_options_to_proto(OPTIONS),
        )
        outbox.put_nowait(pb.VerifyRequest(hello=hello))

        async def requests() -> AsyncIterator[pb.VerifyRequest]:
            with suppress(asyncio.CancelledError):
                while True:
                    yield await outbox.get()
                    self.num_messages += 1

        def send(messages: list[ToTarget]) -> None:
            for message in messages:
                outbox.put_nowait(_request(message))

        send(draft.begin())
        async for response in stub.Verify(requests()):
            self.num_messages += 1
            if (event := event_of(response)) is not None:
                send(draft.answer(event))


def _request(message: ToTarget) -> pb.VerifyRequest:
    request = pb.VerifyRequest()
    if isinstance(message, Candidates):
        request.candidates.CopyFrom(codec.candidates_to_proto(message))
    elif isinstance(message, AudioChunk):
        request.audio.CopyFrom(codec.audio_chunk_to_proto(message))
    return request
