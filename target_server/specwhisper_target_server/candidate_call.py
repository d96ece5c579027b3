"""``Share``: the calls in which draft servers send candidates and receive windows and commits.

A draft server has one such call for all its sessions. A gRPC message costs the same however small it is, and
sessions answer the commits of a forward pass at about the same time. So each direction sends everything that
waits in one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from time import monotonic_ns, perf_counter_ns
from typing import TypeVar

from specwhisper.engine.engine_thread import EngineThread
from specwhisper.engine.verifier import Verifier
from specwhisper.errors import (
    IdleClient,
    InvalidRequest,
    PairMismatch,
    SlowReader,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.observe.metrics import EngineMetrics, ServerMetrics
from specwhisper.observe.tracing import WindowSpans
from specwhisper.rpc.calls import Evictor
from specwhisper.types import Candidates, Commit, Failed, Finished, FromTarget, WindowOpened
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, codec
from specwhisper.wire.v1 import verification_pb2 as pb

MAX_UNREAD_EVENTS = 32_768  # all sessions of a call together
MAX_EVENTS = 256  # in one response
MAX_BLOCKS = 256  # in one request
MAX_POSTED_BLOCKS = 32  # a session's, which may wait for the engine's next step
MIN_KEY, MAX_KEY = 16, 64  # characters
JOIN_S = 5.0  # for which a session waits for its draft server's call, which was opened first

Request = TypeVar("Request")
OwnResponses = asyncio.Queue[pb.VerifyResponse | Finished | Failed]


class TargetMetrics(ServerMetrics):
    """Metrics of sessions, errors and the engine's work; all names begin with ``specwhisper_target_``."""

    def __init__(self, checkpoint: Checkpoint, device: str = "") -> None:
        super().__init__("specwhisper_target", model=checkpoint.name, dtype=checkpoint.dtype, device=device)
        self.engine = EngineMetrics(self)


class JoinedSession:
    """A session's part of a call: where the engine delivers the session's events.

    ``own``: responses of the session's own call, which carries its errors and its end.
    """

    def __init__(
        self, call: CandidateCall, number: int, session_id: str, own: OwnResponses, windows: WindowSpans
    ) -> None:
        self.id = session_id
        self._call = call
        self._number = number
        self._own = own
        self._windows = windows
        self._has_failed = False
        self._context = copy_context()  # its windows' spans belong to the session's own call

    def receive(self, event: FromTarget) -> None:
        if self._has_failed:  # events after an error may leave a gap
            return
        match event:
            case WindowOpened() | Commit():
                if self._windows.are_traced:
                    self._context.run(self._windows.on_event, event)
                self._call.put(self._number, event)
            case Finished():
                self._call.put(self._number, None)
                self._own.put_nowait(event)
            case Failed():
                self.fail(event.error)

    def fail(self, error: Exception) -> None:
        self._has_failed = True
        self._own.put_nowait(Failed(error))


class CandidateCall:
    """One ``Share`` call.

    Parameters
    ----------
    evictor : ends the call if its caller does not read.
    idle_timeout_s : longest time without a session, in seconds.
    """

    def __init__(
        self,
        verifier: Verifier,
        thread: EngineThread[FromTarget],
        vocabulary_size: int,
        metrics: TargetMetrics,
        evictor: Evictor,
        idle_timeout_s: float,
    ) -> None:
        self._verifier = verifier
        self._thread = thread
        self._vocabulary_size = vocabulary_size
        self._metrics = metrics
        self._evictor = evictor
        self._idle_timeout_s = idle_timeout_s
        self._sessions: dict[int, JoinedSession] = {}
        self._unread: deque[tuple[int, WindowOpened | Commit | None]] = deque()
        self._has_news = asyncio.Event()
        self._is_draining = False
        self._error: Exception | None = None
        self._idle: asyncio.TimerHandle | None = None  # set while the call is served without a session
        self._is_served = False

    @contextmanager
    def joined(
        self, number: int, session_id: str, own: OwnResponses, windows: WindowSpans
    ) -> Iterator[JoinedSession]:
        """Let a session take part while the body runs.

        Raise :class:`InvalidRequest` if another session of the call has that number.
        """
        if number in self._sessions:
            raise InvalidRequest(f"Session {number} is in the `Share` call already: choose another number.")
        self._sessions[number] = session = JoinedSession(self, number, session_id, own, windows)
        self._watch_idle()
        try:
            yield session
        finally:
            del self._sessions[number]
            self._watch_idle()
            self._has_news.set()  # a draining server ends the call after the last session

    def drain(self) -> None:
        """End the call once no session is left.

        Call it when the server stops, the caller has nothing more to send, or no session has joined for a
        while.
        """
        self._is_draining = True
        self._has_news.set()

    def put(self, number: int, event: WindowOpened | Commit | None) -> None:
        """Send an event of a session; ``None`` after its last one."""
        self._unread.append((number, event))
        self._has_news.set()
        if len(self._unread) > MAX_UNREAD_EVENTS:
            self._error = SlowReader(f"More than {MAX_UNREAD_EVENTS} events are unread: the call has ended.")
            self._unread.clear()
            self._evictor.evict(self._error)

    async def serve(
        self, first: pb.ShareRequest, requests: AsyncIterator[pb.ShareRequest]
    ) -> AsyncGenerator[pb.ShareResponse]:
        """Yield the events of all sessions; the end of the call ends its sessions."""
        reading = asyncio.create_task(self._read(first, requests))
        self._is_served = True
        self._watch_idle()
        try:
            yield pb.ShareResponse(heartbeat=_heartbeat())
            while True:
                while not self._unread:
                    if self._error is not None:
                        raise self._error
                    if self._is_draining and not self._sessions:
                        return
                    self._has_news.clear()
                    try:
                        async with asyncio.timeout(HEARTBEAT_S):
                            await self._has_news.wait()
                    except TimeoutError:
                        yield pb.ShareResponse(heartbeat=_heartbeat())
                yield self._next_response()
        finally:
            reading.cancel()
            self._is_served = False
            self._watch_idle()
            lost: SpecWhisperError = TargetUnavailable("The `Share` call of this session has ended.")
            if isinstance(self._error, SlowReader):
                lost = self._error
            for session in self._sessions.values():
                session.fail(lost)

    def _next_response(self) -> pb.ShareResponse:
        response = pb.ShareResponse()
        while self._unread and len(response.events) < MAX_EVENTS:
            number, event = self._unread.popleft()
            message = response.events.add(number=number)
            match event:
                case None:
                    message.is_finished = True
                case WindowOpened():
                    message.window_opened.CopyFrom(codec.window_opened_to_proto(event))
                case Commit():
                    codec.commit_to_proto(event, message.commit)
        return response

    async def _read(self, first: pb.ShareRequest, requests: AsyncIterator[pb.ShareRequest]) -> None:
        """Pass candidates to the engine; while it has too many, the caller waits."""
        num_posted = 0
        request: pb.ShareRequest | None = first
        try:
            while request is not None:
                blocks, received_ns = self._blocks(request), perf_counter_ns()
                submit = self._verifier.submit
                self._thread.post(*(partial(submit, *block, received_ns) for block in blocks))
                num_posted += len(blocks)
                if num_posted > MAX_POSTED_BLOCKS * len(self._sessions):
                    await self._thread.call(lambda: None)
                    num_posted = 0
                request = await next_of_share(requests)
            self.drain()
        except Exception as error:
            self._error = self._error or error  # keeps the first error: reading an evicted call fails as well
            self._has_news.set()

    def _blocks(self, request: pb.ShareRequest) -> Sequence[tuple[str, Candidates]]:
        """Return the candidates of a request by session; an invalid block ends only its session."""
        if (num_blocks := len(request.candidates)) > MAX_BLOCKS:
            raise InvalidRequest(f"A request has {num_blocks} blocks; at most {MAX_BLOCKS} fit.")
        blocks = []
        for message in request.candidates:
            session = self._sessions.get(message.number)
            if session is None:  # it has ended while they were in flight
                continue
            try:
                block = codec.candidates_from_proto(
                    message.candidates,
                    vocabulary_size=self._vocabulary_size,
                    max_tokens=self._verifier.limits.max_block_tokens,
                )
            except Exception as error:
                session.fail(error)
            else:
                self._metrics.engine.on_message(block)
                blocks.append((session.id, block))
        return blocks

    def _watch_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._is_served and not self._sessions:
            self._idle = asyncio.get_running_loop().call_later(self._idle_timeout_s, self.drain)


class CandidateCalls:
    """The open ``Share`` calls of a server, by caller and key."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], CandidateCall] = {}
        self._has_new = asyncio.Condition()

    @asynccontextmanager
    async def opened(self, caller: str, key: str, call: CandidateCall) -> AsyncIterator[None]:
        """Let sessions join a call while the body runs.

        Raise :class:`InvalidRequest` for a key that is missing, has another length or is in use.
        """
        if not MIN_KEY <= len(key) <= MAX_KEY:
            raise InvalidRequest(
                f"A `Share` call begins with a key of {MIN_KEY} to {MAX_KEY} characters; this one has "
                f"{len(key)}."
            )
        if (caller, key) in self._by_key:
            raise InvalidRequest("The key is that of an open `Share` call: choose another at random.")
        self._by_key[caller, key] = call
        try:
            async with self._has_new:
                self._has_new.notify_all()
            yield
        finally:
            del self._by_key[caller, key]

    async def find(self, caller: str, key: str) -> CandidateCall:
        """Return a caller's call; wait briefly if it hasn't arrived.

        Raise :class:`PairMismatch` if it does not arrive.
        """
        if not key:
            raise InvalidRequest("The hello has no share_key: open a `Share` call first, and set its key.")
        try:
            async with asyncio.timeout(JOIN_S), self._has_new:
                await self._has_new.wait_for(lambda: (caller, key) in self._by_key)
        except TimeoutError:
            raise PairMismatch(
                "The session's `Share` call has not reached this target: a proxy sends the calls of one "
                "connection to several targets. Let it send all of them to one target, or give draft servers "
                "the targets' own addresses (--target)."
            ) from None
        return self._by_key[caller, key]

    def drain(self) -> None:
        for call in self._by_key.values():
            call.drain()


def _heartbeat() -> pb.Heartbeat:
    return pb.Heartbeat(sent_ns=monotonic_ns())


async def next_in_time(
    requests: AsyncIterator[Request], limit_s: float, silent: SpecWhisperError
) -> Request | None:
    """Return the next request, ``None`` after the last one; raise ``silent`` if it does not come in time."""
    try:
        async with asyncio.timeout(limit_s):
            return await anext(requests, None)
    except TimeoutError:
        raise silent from None


async def next_of_share(requests: AsyncIterator[pb.ShareRequest]) -> pb.ShareRequest | None:
    silent = IdleClient(f"The `Share` call has sent nothing for {SILENCE_S:g} s, no heartbeat.")
    return await next_in_time(requests, SILENCE_S, silent)
