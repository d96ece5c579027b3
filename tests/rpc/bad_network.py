"""A faulty network between draft server and target: a server that forwards, edits and delays."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc.aio

from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.rpc.serving import RunningServer
from specwhisper.types import Candidates
from specwhisper.wire import codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from tests.rpc.services import as_target

EditBlock = Callable[[Candidates], Sequence[Candidates]]


class BadNetwork(verification_pb2_grpc.VerificationServicer):
    """Forwards calls of a draft server to a target.

    Parameters
    ----------
    edit_block : returns a function for each session that edits its candidate blocks.
    hold_commits : number of commits to wait for before a block is forwarded, as on a slow link.
    """

    def __init__(
        self, target: grpc.aio.Channel, edit_block: Callable[[], EditBlock] | None, hold_commits: int
    ) -> None:
        self._stub = verification_pb2_grpc.VerificationStub(target)
        self._edit_block = edit_block or (lambda: lambda block: (block,))
        self._hold_commits = hold_commits

    async def Locate(self, request: pb.LocateRequest, context: Any) -> pb.LocateResponse:
        return await self._stub.Locate(request)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return await self._stub.Describe(request)

    async def Verify(
        self, requests: AsyncIterator[pb.VerifyRequest], context: Any
    ) -> AsyncGenerator[pb.VerifyResponse, None]:
        async with aclosing(self._relay(requests, self._stub.Verify(), context)) as responses:
            async for response in responses:
                yield response

    async def Share(
        self, requests: AsyncIterator[pb.ShareRequest], context: Any
    ) -> AsyncGenerator[pb.ShareResponse, None]:
        async with aclosing(self._relay(requests, self._stub.Share(), context)) as responses:
            async for response in responses:
                yield response

    async def _relay(self, requests: Any, call: Any, context: Any) -> AsyncGenerator[Any, None]:
        call = with_true_status(call)
        commits: dict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))
        sending = asyncio.create_task(self._pass_on(requests, call, commits))
        sending.add_done_callback(lambda _: call.cancel() if _has_failed(sending) else None)
        try:
            async for response in call:
                for event in getattr(response, "events", ()):
                    if event.WhichOneof("message") == "commit":
                        commits[event.number].release()
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))
        finally:
            sending.cancel()
            call.cancel()

    async def _pass_on(self, requests: Any, call: Any, commits: dict[int, asyncio.Semaphore]) -> None:
        edits: dict[int, EditBlock] = defaultdict(self._edit_block)
        late: list[asyncio.Task[None]] = []
        turn = asyncio.Lock()  # a call takes one write at a time
        try:
            async for request in requests:
                if not getattr(request, "candidates", ()):
                    async with turn:
                        await call.write(request)
                    continue
                for each in request.candidates:
                    for edited in edits[each.number](codec.candidates_from_proto(each.candidates)):
                        block = pb.SharedCandidates(number=each.number)
                        codec.candidates_to_proto(edited, block.candidates)
                        message = pb.ShareRequest(candidates=[block])
                        writing = self._write_late(message, call, turn, commits[each.number])
                        if self._hold_commits:
                            late.append(asyncio.create_task(writing))
                        else:
                            await writing
            await asyncio.gather(*late)
            await call.done_writing()
        finally:
            for task in late:
                task.cancel()

    async def _write_late(self, message, call, turn: asyncio.Lock, commits: asyncio.Semaphore) -> None:
        """Delay a block until the target has committed without it."""
        for _ in range(self._hold_commits):
            await commits.acquire()
        async with turn:
            if not call.done():
                await call.write(message)


def _has_failed(sending: asyncio.Task[None]) -> bool:
    """Return whether forwarding failed; then the call would wait forever for requests."""
    return not sending.cancelled() and sending.exception() is not None


@asynccontextmanager
async def bad_network(
    target: str, edit_block: Callable[[], EditBlock] | None = None, *, hold_commits: int = 0
) -> AsyncIterator[RunningServer]:
    async with (
        open_channel(target) as channel,
        as_target(BadNetwork(channel, edit_block, hold_commits)) as server,
    ):
        yield server
