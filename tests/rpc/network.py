"""Networks that cut connections, before the target or before the draft server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from math import inf

import grpc.aio

from specwhisper.rpc.channels import open_channel, with_true_status
from specwhisper.rpc.serving import RunningServer
from specwhisper.tasks import NextItem
from specwhisper.wire.v1 import transcription_pb2_grpc
from tests.rpc.bad_network import BadNetwork
from tests.rpc.services import as_draft_server, as_target


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
        super().__init__(target, None, 0)
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


@asynccontextmanager
async def cut_network(
    target: str, cuts: Sequence[int], cuts_of_shared: Sequence[int] = (), *, stalls: bool = False
) -> AsyncIterator[tuple[RunningServer, CutNetwork]]:
    """Run a server that forwards to ``target``; yield it and its network."""
    async with open_channel(target) as channel:
        servicer = CutNetwork(channel, cuts, cuts_of_shared, stalls=stalls)
        async with as_target(servicer) as server:
            yield server, servicer


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
        sending = asyncio.create_task(self._forward(requests, call))
        try:
            async for response in call:
                if response.ping:
                    yield response
                    continue
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

    async def _forward(self, requests, call) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader has the error
            async for request in requests:
                await call.write(request)
            await call.done_writing()


@asynccontextmanager
async def cut_clients(draft: str, cuts: Sequence[int]) -> AsyncIterator[tuple[RunningServer, CutClients]]:
    """Run a server that forwards to a draft server; yield it and its proxy."""
    async with open_channel(draft) as channel:
        servicer = CutClients(channel, cuts)
        async with as_draft_server(servicer) as server:
            yield server, servicer
