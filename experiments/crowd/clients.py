"""Clients without a draft server around them: each recites over gRPC, alone or on shared streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress

import grpc.aio

from experiments.crowd.in_process import MODE, OPTIONS
from experiments.crowd.recited import RECITED, RecitedDraft
from specwhisper.types import AudioChunk, Candidates, ToTarget
from specwhisper.wire import PROTOCOL_VERSION, codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.grpc_target_stream import PIECE_BYTES, SHARED_PIECE_BYTES
from specwhisper_draft_server.link.sharing import SharedSession, SharedStream
from specwhisper_target_server.event_queue import event_of


class Generator:
    """Sessions on one server, as many as it has slots.

    Parameters
    ----------
    num_shared : draft servers, whose sessions share a stream each, but for its first; 0: none shares.

    Attributes
    ----------
    num_messages : sent and received so far.
    """

    def __init__(self, address: str, num_sessions: int, num_shared: int = 0) -> None:
        self.num_messages = 0
        self._num_sessions = num_sessions
        self._num_shared = num_shared
        self._channel = grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        self._stub = verification_pb2_grpc.VerificationStub(self._channel)
        self._address = address
        self._shared: list[SharedStream] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Open all sessions."""
        for _ in range(self._num_shared):
            self._shared.append(SharedStream(self._address, self._stub))
        for stream in self._shared:
            await stream.wait_begun()
        self._tasks = [asyncio.create_task(self._run(number)) for number in range(self._num_sessions)]

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
        for stream in self._shared:
            stream.close()
        await self._channel.close()

    async def _run(self, number: int) -> None:
        with ExitStack() as joined:
            shared = None
            if number >= len(self._shared) > 0:
                shared = joined.enter_context(self._shared[number % len(self._shared)].joined())
            await self._recite(number, shared)

    async def _recite(self, number: int, shared: SharedSession | None) -> None:
        piece_bytes = PIECE_BYTES if shared is None else SHARED_PIECE_BYTES
        draft, outbox = RecitedDraft(number, piece_bytes // 2), asyncio.Queue[pb.VerifyRequest]()
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            vocabulary_digest=RECITED.digest,
            mode=codec.mode_to_proto(MODE),
            decoding=codec.decoding_options_to_proto(OPTIONS),
            shared_key=shared.key if shared is not None else "",
            shared_number=shared.number if shared is not None else 0,
        )
        outbox.put_nowait(pb.VerifyRequest(hello=hello))

        async def requests() -> AsyncIterator[pb.VerifyRequest]:
            with suppress(asyncio.CancelledError):
                while True:
                    yield await outbox.get()
                    self.num_messages += 1

        def send(messages: list[ToTarget]) -> None:
            for message in messages:
                if isinstance(message, Candidates) and shared is not None:
                    shared.propose(message)
                    self.num_messages += 1
                else:
                    outbox.put_nowait(_request(message))

        send(draft.begin())
        own = aiter(self._stub.Verify(requests()))
        async for response in own if shared is None else shared.read(own):
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
