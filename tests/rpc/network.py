"""Bad networks: servers that pass everything on, but not as it came, or not to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from math import inf

import grpc.aio

from specwhisper.types import Candidates
from specwhisper.wire import codec
from specwhisper.wire.channels import open_channel
from specwhisper.wire.serving import RunningServer, ServingOptions, start_server
from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import transcription_pb2_grpc, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb

EditBlock = Callable[[Candidates], Sequence[Candidates]]


class BadNetwork(verification_pb2_grpc.VerificationServicer):
    """Stands between a draft server and a target.

    Parameters
    ----------
    edit_block : makes what arrives of each candidate block; one per session.
    hold_commits : commits to wait for before a block is passed on, as on a slow link.
    """

    def __init__(
        self, target: grpc.aio.Channel, edit_block: Callable[[], EditBlock] | None, hold_commits: int
    ) -> None:
        self._stub = verification_pb2_grpc.VerificationStub(target)
        self._edit_block = edit_block or (lambda: lambda block: (block,))
        self._hold_commits = hold_commits

    async def Locate(self, request, context):
        return await self._stub.Locate(request)

    async def Describe(self, request, context):
        return await self._stub.Describe(request)

    async def Verify(self, requests, context):
        call = with_true_status(self._stub.Verify())
        commits = asyncio.Semaphore(0)
        sending = asyncio.create_task(self._pass_on(requests, call, commits))
        sending.add_done_callback(lambda _: call.cancel() if _has_failed(sending) else None)
        try:
            async for response in call:
                if response.WhichOneof("message") == "commit":
                    commits.release()
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))
        finally:
            sending.cancel()
            call.cancel()

    async def _pass_on(self, requests, call, commits: asyncio.Semaphore) -> None:
        edit = self._edit_block()
        late: list[asyncio.Task[None]] = []
        turn = asyncio.Lock()  # a call takes one write at a time
        try:
            async for request in requests:
                if request.WhichOneof("message") != "candidates":
                    async with turn:
                        await call.write(request)
                    continue
                block = codec.candidates_from_proto(request.candidates)
                for edited in edit(block):
                    message = pb.VerifyRequest(candidates=codec.candidates_to_proto(edited))
                    writing = self._write_late(message, call, turn, commits)
                    if not self._hold_commits:
                        await writing
                    else:
                        late.append(asyncio.create_task(writing))
            await asyncio.gather(*late)
            await call.done_writing()
        finally:
            for task in late:
                task.cancel()

    async def _write_late(self, message, call, turn: asyncio.Lock, commits: asyncio.Semaphore) -> None:
        """Hold a block back until the target has gone on without it."""
        for _ in range(self._hold_commits):
            await commits.acquire()
        async with turn:
            if not call.done():
                await call.write(message)


def _has_failed(sending: asyncio.Task[None]) -> bool:
    """Tell whether passing on ended with an error; a call whose requests are lost would wait for ever."""
    return not sending.cancelled() and sending.exception() is not None


@asynccontextmanager
async def bad_network(
    target: str, edit_block: Callable[[], EditBlock] | None = None, *, hold_commits: int = 0
) -> AsyncIterator[RunningServer]:
    """Give a server that leads to ``target``."""
    async with open_channel(target) as channel:
        servicer = BadNetwork(channel, edit_block, hold_commits)
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, servicer)
        server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
        try:
            yield server
        finally:
            await server.stop(drain_timeout_s=0)


class CutNetwork(BadNetwork):
    """Breaks off connections.

    Parameters
    ----------
    cuts : behind how many of the target's words each session breaks off, in order; later ones hold.
    """

    def __init__(self, target: grpc.aio.Channel, cuts: Sequence[int]) -> None:
        super().__init__(target, None, 0)
        self._cuts = list(cuts)
        self.num_cut = 0

    async def Verify(self, requests, context):
        words_left = self._cuts.pop(0) if self._cuts else inf
        async with aclosing(super().Verify(requests, context)) as responses:
            async for response in responses:
                if response.WhichOneof("message") in ("window_opened", "commit"):
                    if not words_left:
                        self.num_cut += 1
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                    words_left -= 1
                yield response


@asynccontextmanager
async def cut_network(target: str, cuts: Sequence[int]) -> AsyncIterator[tuple[RunningServer, CutNetwork]]:
    """Give a server that leads to ``target``, and what it does."""
    async with open_channel(target) as channel:
        servicer = CutNetwork(channel, cuts)
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, servicer)
        server = await start_server({"specwhisper.wire.v1.Verification": add}, ServingOptions())
        try:
            yield server, servicer
        finally:
            await server.stop(drain_timeout_s=0)


class CutClients(transcription_pb2_grpc.TranscriptionServicer):
    """Stands between clients and a draft server, and breaks off their streams.

    Parameters
    ----------
    cuts : behind how many responses each stream breaks off, in order; later ones hold.
    """

    def __init__(self, draft: grpc.aio.Channel, cuts: Sequence[int]) -> None:
        self._stub = transcription_pb2_grpc.TranscriptionStub(draft)
        self._cuts = list(cuts)
        self.num_cut = 0

    async def GetModel(self, request, context):
        return await self._stub.GetModel(request)

    async def StreamingRecognize(self, requests, context):
        words_left = self._cuts.pop(0) if self._cuts else inf
        call = with_true_status(self._stub.StreamingRecognize())
        sending = asyncio.create_task(self._pass_on(requests, call))
        try:
            async for response in call:
                if not words_left:
                    self.num_cut += 1
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                words_left -= 1
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))
        finally:
            sending.cancel()
            call.cancel()

    async def _pass_on(self, requests, call) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # whoever reads has the error
            async for request in requests:
                await call.write(request)
            await call.done_writing()


@asynccontextmanager
async def cut_clients(draft: str, cuts: Sequence[int]) -> AsyncIterator[tuple[RunningServer, CutClients]]:
    """Give a server that leads to a draft server, and what it does."""
    async with open_channel(draft) as channel:
        servicer = CutClients(channel, cuts)
        add = partial(transcription_pb2_grpc.add_TranscriptionServicer_to_server, servicer)
        server = await start_server({"specwhisper.wire.v1.Transcription": add}, ServingOptions())
        try:
            yield server, servicer
        finally:
            await server.stop(drain_timeout_s=0)
