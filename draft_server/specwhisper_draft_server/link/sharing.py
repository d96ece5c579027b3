"""Streams to targets that sessions share.

Over gRPC, a message takes the same time however small it is. So the candidates of all sessions at a target go
out together, and their windows and commits come together, once a target has several sessions. Everything else
of a session stays in a stream of its own: its audio, errors and end. Each stream has heartbeats of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from itertools import count
from time import monotonic_ns
from typing import Any

import grpc.aio

from specwhisper.errors import SlowReader, SpecWhisperError, TargetUnavailable
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import Candidates
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, codec
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

logger = logging.getLogger(__name__)

MIN_SESSIONS = 2  # at a target, for a stream that they share; the first one does not join
JOIN_S = 0.5  # that a session waits for the stream to open
MAX_BLOCKS = 256  # in one request
MAX_UNREAD = 8_192  # responses of a session

Response = pb.VerifyResponse | pb.SharedEvent


class SharedSession:
    """A session's part of a shared stream.

    Iterate over it for all responses of the session, of both streams.

    Parameters
    ----------
    number : of the session in the stream.

    Attributes
    ----------
    has_received : whether an event has come; candidates may follow in the shared stream then.
    """

    def __init__(self, stream: SharedStream, number: int) -> None:
        self.number = number
        self.key = stream.key
        self.has_received = False
        self._stream = stream
        self._received: asyncio.Queue[Response | BaseException | None] = asyncio.Queue()
        self._num_open = 2  # streams that have not ended
        self._is_finished = False  # in the shared stream
        self._reading: asyncio.Task[None] | None = None

    def propose(self, block: Candidates) -> None:
        """Queue candidates."""
        self._stream.send(self.number, block)

    def read(self, own: AsyncIterator[pb.VerifyResponse]) -> AsyncIterator[Response]:
        """Begin to read the session's own responses too; return both as one iterator."""
        self._reading = asyncio.create_task(self._read(own))
        return self

    def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()

    def receive(self, item: pb.SharedEvent | BaseException) -> None:
        """Take an event of the shared stream, or its error."""
        if self._is_finished:  # the stream may end before the session's own does
            return
        self.has_received = True
        self._is_finished = isinstance(item, pb.SharedEvent) and item.WhichOneof("message") == "is_finished"
        self._put(None if self._is_finished else item)

    def _put(self, item: Response | BaseException | None) -> None:
        if self._received.qsize() < MAX_UNREAD:
            self._received.put_nowait(item)
        elif self._received.qsize() == MAX_UNREAD:  # further ones are dropped
            self._received.put_nowait(SlowReader(f"More than {MAX_UNREAD} responses are unread."))

    def __aiter__(self) -> SharedSession:
        return self

    async def __anext__(self) -> Response:
        while self._num_open:
            item = await self._received.get()
            if isinstance(item, BaseException):
                raise item
            if item is not None:
                return item
            self._num_open -= 1
        raise StopAsyncIteration

    async def _read(self, own: AsyncIterator[pb.VerifyResponse]) -> None:
        ended: BaseException | None = None
        try:
            async for response in own:
                self._put(response)
        except (Exception, asyncio.CancelledError) as error:  # the latter if the session's call is cancelled
            ended = error
        self._put(ended)


class SharedStream:
    """One ``Share`` call to a target.

    Parameters
    ----------
    stub : of the target.

    Attributes
    ----------
    key : for the hello of a session that joins; empty while none can.
    """

    def __init__(self, address: str, stub: verification_pb2_grpc.VerificationStub) -> None:
        self.key = ""
        self._address = address
        self._sessions: dict[int, SharedSession] = {}
        self._numbers = count(1)
        self._unsent: deque[tuple[int, Candidates]] = deque()
        self._has_news = asyncio.Event()
        self._has_begun = asyncio.Event()
        self._is_slow = False  # to begin
        # In a context of its own: the stream belongs to no session's request.
        self._running = asyncio.create_task(self._run(stub), context=Context())

    @property
    def is_over(self) -> bool:
        """Whether the call has ended."""
        return self._has_begun.is_set() and not self.key

    @contextmanager
    def joined(self) -> Iterator[SharedSession]:
        """Let a session take part while the body runs."""
        session = SharedSession(self, next(self._numbers))
        self._sessions[session.number] = session
        try:
            yield session
        finally:
            session.close()
            del self._sessions[session.number]

    async def wait_begun(self) -> None:
        """Wait until sessions can join, or never will.

        Only once, for :data:`JOIN_S`: a stream that has not begun by then is not waited for again.
        """
        if not self._is_slow:
            try:
                async with asyncio.timeout(JOIN_S):  # Python 3.11's wait_for may swallow a cancellation
                    await self._has_begun.wait()
            except TimeoutError:
                self._is_slow = True

    def send(self, number: int, block: Candidates) -> None:
        """Queue candidates of a session."""
        self._unsent.append((number, block))
        self._has_news.set()

    def close(self) -> None:
        """End the call."""
        self._running.cancel()

    async def _run(self, stub: verification_pb2_grpc.VerificationStub) -> None:
        error: SpecWhisperError = TargetUnavailable(
            f"Target {self._address} has ended the stream that sessions share."
        )
        try:
            await self._receive(with_true_status(stub.Share(self._requests())))
        except grpc.aio.AioRpcError as failure:
            reason = error_from_rpc(failure, f"target {self._address}")
            if isinstance(reason, SlowReader):
                error = reason
            logger.info("no shared stream", extra={"target": self._address, "error": str(reason)})
        except TargetUnavailable as silence:
            error = silence
            logger.info("no shared stream", extra={"target": self._address, "error": str(error)})
        except Exception:  # a bug; sessions resume
            logger.exception("no shared stream", extra={"target": self._address})
        finally:
            self.key = ""
            self._has_begun.set()
            self._has_news.set()  # gRPC does not stop the iteration of requests when the call ends
            for session in self._sessions.values():
                session.receive(error)

    async def _receive(self, call: Any) -> None:
        responses = aiter(call)
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    response = await anext(responses, None)
            except TimeoutError:
                call.cancel()
                raise TargetUnavailable(
                    f"Target {self._address} has sent nothing for {SILENCE_S:g} s in the stream that "
                    "sessions share, not even a heartbeat."
                ) from None
            if response is None:
                return
            if response.key:
                self.key = response.key
                self._has_begun.set()
            for event in response.events:
                if (session := self._sessions.get(event.number)) is not None:
                    session.receive(event)

    async def _requests(self) -> AsyncIterator[pb.ShareRequest]:
        while not self.is_over:
            while not (self._unsent or self.is_over):
                self._has_news.clear()
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._has_news.wait()
                except TimeoutError:
                    yield pb.ShareRequest(heartbeat=pb.Heartbeat(sent_ns=monotonic_ns()))
            request = pb.ShareRequest()
            while self._unsent and len(request.candidates) < MAX_BLOCKS:
                number, block = self._unsent.popleft()
                codec.candidates_to_proto(block, request.candidates.add(number=number).candidates)
            yield request


class SharedStreams:
    """The shared streams of a draft server: at most one for each target."""

    def __init__(self) -> None:
        self._by_address: dict[str, SharedStream] = {}
        self._num_sessions: Counter[str] = Counter()

    @asynccontextmanager
    async def session(
        self, address: str, stub: verification_pb2_grpc.VerificationStub
    ) -> AsyncIterator[SharedSession | None]:
        """Count a session at a target while the body runs.

        It is yielded its part of the shared stream; ``None`` where there is none.
        """
        self._num_sessions[address] += 1
        try:
            stream = self._by_address.get(address)
            if stream is not None and stream.is_over:
                stream = None
            if stream is None and self._num_sessions[address] >= MIN_SESSIONS:
                stream = self._by_address[address] = SharedStream(address, stub)
            if stream is not None:
                await stream.wait_begun()
            if stream is not None and stream.key:
                with stream.joined() as joined:
                    yield joined
            else:
                yield None
        finally:
            self._num_sessions[address] -= 1
            if not self._num_sessions[address]:
                del self._num_sessions[address]
                if (stream := self._by_address.pop(address, None)) is not None:
                    stream.close()
