"""Networks that edit, delay or cut what they forward, before the target or before the draft server."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from math import inf
from typing import Any

import grpc.aio

from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.rpc.serving import RunningServer
from specwhisper.tasks import NextItem
from specwhisper.types import Candidates
from specwhisper.wire import codec
from specwhisper.wire.v1 import transcription_pb2_grpc, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.services import as_draft_server, as_target

EditBlock = Callable[[Candidates], Sequence[Candidates]]


async def relayed(call: Any, sending: Coroutine[Any, Any, None], context: Any) -> AsyncGenerator[Any]:
    """Yield a call's responses while its requests are sent; end with its error."""
    sender = asyncio.create_task(sending)
    # Otherwise the call would wait forever for requests.
    sender.add_done_callback(
        lambda _: call.cancel() if not sender.cancelled() and sender.exception() else None
    )
    try:
        async for response in call:
            yield response
    except grpc.aio.AioRpcError as error:
        await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))
    finally:
        sender.cancel()
        call.cancel()


class BadNetwork(verification_pb2_grpc.VerificationServicer):
    """Forwards calls of a draft server to a target.

    ``edit_block`` returns a function for each session that edits its candidate blocks.
    """

    def __init__(
        self,
        target: grpc.aio.Channel,
        edit_block: Callable[[], EditBlock] = lambda: lambda block: (block,),
    ) -> None:
        self._stub = verification_pb2_grpc.VerificationStub(target)
        self._edit_block = edit_block

    async def Locate(self, request: pb.LocateRequest, context: Any) -> pb.LocateResponse:
        return await self._stub.Locate(request)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return await self._stub.Describe(request)

    async def Verify(self, requests: AsyncIterator[pb.VerifyRequest], context: Any) -> AsyncGenerator[Any]:
        async with aclosing(self._relay(requests, self._stub.Verify(), context)) as responses:
            async for response in responses:
                yield response

    async def Share(self, requests: AsyncIterator[pb.ShareRequest], context: Any) -> AsyncGenerator[Any]:
        async with aclosing(self._relay(requests, self._stub.Share(), context)) as responses:
            async for response in responses:
                yield response

    def _relay(self, requests: Any, call: Any, context: Any) -> AsyncGenerator[Any]:
        call = with_true_status(call)
        return relayed(call, self._pass_on(requests, call), context)

    async def _pass_on(self, requests: Any, call: Any) -> None:
        edits: dict[int, EditBlock] = defaultdict(self._edit_block)
        async for request in requests:
            if not getattr(request, "candidates", ()):
                await call.write(request)
                continue
            for each in request.candidates:
                for edited in edits[each.number](codec.candidates_from_proto(each.candidates)):
                    block = pb.SharedCandidates(number=each.number)
                    codec.candidates_to_proto(edited, block.candidates)
                    if not call.done():
                        await call.write(pb.ShareRequest(candidates=[block]))
        await call.done_writing()


class CutNetwork(BadNetwork):
    """A network between draft and target that cuts connections.

    Parameters
    ----------
    cuts : after how many of the target's messages each session is cut, in order; -1: before its welcome.
        Later sessions are not cut.
    cuts_of_shared : the same for streams that sessions share, in responses with events.
    stalls : whether those streams go silent instead, while their connections stay open.
    """

    def __init__(
        self,
        target: grpc.aio.Channel,
        cuts: Sequence[int],
        cuts_of_shared: Sequence[int] = (),
        *,
        stalls: bool = False,
    ) -> None:
        super().__init__(target)
        self._cuts = list(cuts)
        self._cuts_of_shared = list(cuts_of_shared)
        self._stalls = stalls
        self._left: dict[tuple[str, int], float] = {}  # messages of each session until it is cut
        self._is_cut: dict[tuple[str, int], asyncio.Event] = {}
        self.num_cut = 0

    async def Verify(self, requests, context):
        left = self._cuts.pop(0) if self._cuts else inf
        if left < 0:
            await self._cut(context)
        hello = await anext(aiter(requests))
        place = hello.hello.share_key, hello.hello.share_number
        self._left[place], self._is_cut[place] = left, asyncio.Event()
        cutting = asyncio.create_task(self._is_cut[place].wait())
        try:
            async with aclosing(super().Verify(_after(hello, requests), context)) as responses:
                while True:
                    async with NextItem(responses) as following:
                        has_arrived = await following.wait(cutting)
                        if self._is_cut[place].is_set():  # also if the session has ended meanwhile
                            await self._cut(context)
                        if not has_arrived or following.item is None:
                            return
                        response = following.item
                    yield response
        finally:
            cutting.cancel()
            del self._left[place]  # what has ended cannot be cut

    async def Share(self, requests, context):
        left = self._cuts_of_shared.pop(0) if self._cuts_of_shared else inf
        first = await anext(aiter(requests))
        async with aclosing(super().Share(_after(first, requests), context)) as responses:
            async for response in responses:
                if response.events:
                    if not left and self._stalls:
                        self.num_cut += 1
                        await asyncio.Event().wait()
                    if not left:
                        await self._cut(context)
                    left -= 1
                kept = [event for event in response.events if self._passes(first.key, event)]
                del response.events[:]
                response.events.extend(kept)
                yield response

    def _passes(self, key, event) -> bool:
        place = key, event.number
        if place in self._is_cut and self._is_cut[place].is_set():
            return False  # a call delivers in order: nothing follows what is lost
        if place not in self._left or event.is_finished:
            return True
        if not self._left[place]:
            self._is_cut[place].set()
            return False
        self._left[place] -= 1
        return True

    async def _cut(self, context) -> None:
        self.num_cut += 1
        await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")


async def _after(first, requests):
    yield first
    async for request in requests:
        yield request


class CutClients(transcription_pb2_grpc.TranscriptionServicer):
    """A proxy between clients and a draft server that cuts streams.

    Parameters
    ----------
    cuts : after how many responses each stream is cut, in order; answers to marks do not count, and later
        streams are not cut.
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
        async with aclosing(relayed(call, self._forward(requests, call), context)) as responses:
            async for response in responses:
                if not response.ping:
                    if not words_left:
                        self.num_cut += 1
                        await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                    words_left -= 1
                yield response

    async def _forward(self, requests, call) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader has the error
            async for request in requests:
                await call.write(request)
            await call.done_writing()


@asynccontextmanager
async def between(address: str, kind: type, *args: Any, **settings: Any) -> AsyncIterator[Any]:
    """Run a server that forwards to another one; yield it and its network."""
    run = as_target if issubclass(kind, BadNetwork) else as_draft_server
    async with open_channel(address) as channel:
        network = kind(channel, *args, **settings)
        async with run(network) as server:
            yield server, network


def cut_network(
    target: str, cuts: Sequence[int], cuts_of_shared: Sequence[int] = (), *, stalls: bool = False
) -> AbstractAsyncContextManager[tuple[RunningServer, CutNetwork]]:
    return between(target, CutNetwork, cuts, cuts_of_shared, stalls=stalls)


def cut_clients(
    draft: str, cuts: Sequence[int]
) -> AbstractAsyncContextManager[tuple[RunningServer, CutClients]]:
    return between(draft, CutClients, cuts)
