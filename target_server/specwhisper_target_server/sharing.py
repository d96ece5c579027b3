"""Streams that many sessions of one draft server share.

Over gRPC, a message takes the same time however small it is. A draft server of many sessions answers the
commits of a forward pass at about the same time, so both directions send all that waits in one message.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic_ns

from specwhisper.errors import (
    IdleClient,
    InvalidRequest,
    ServerFull,
    SlowReader,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.observe.window_spans import WindowSpans
from specwhisper.rpc.eviction import Evictor
from specwhisper.types import Candidates, Commit, Failed, Finished, FromTarget, WindowOpened
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_target_server.event_queue import EventQueue

MAX_UNREAD_EVENTS = 32_768  # of all sessions of a stream
MAX_EVENTS = 256  # of a response
MAX_BLOCKS = 256  # in one request

SessionCandidates = tuple[str, Candidates]  # with the session's id
Submit = Callable[[Sequence[SessionCandidates], int], Awaitable[object]]


class SharedSession:
    """A session of a shared stream: where the engine delivers its events.

    Parameters
    ----------
    own : events of the session's own stream, which carries its errors and its end.
    put : sends an event in the shared stream; ``None`` after the last one.
    """

    def __init__(
        self,
        session_id: str,
        own: EventQueue,
        windows: WindowSpans,
        put: Callable[[WindowOpened | Commit | None], None],
    ) -> None:
        self.id = session_id
        self._own = own
        self._windows = windows
        self._put = put
        self._context = copy_context()  # of the session's call, to which the spans of its windows belong

    def put_nowait(self, event: FromTarget) -> None:
        """Deliver an event of the engine."""
        match event:
            case WindowOpened() | Commit():
                if self._windows.are_traced:
                    self._context.run(self._windows.on_event, event)
                self._put(event)
            case Finished():
                self._put(None)
                self._own.put_nowait(event)
            case _:
                self._own.put_nowait(event)

    def fail(self, error: Exception) -> None:
        """End the session with an error."""
        self._own.put_nowait(Failed(error))


class SharedStream:
    """One ``Share`` call.

    Parameters
    ----------
    caller : who may join, by name.
    parse : decodes and checks candidates.
    submit : passes candidates to the engine, of so many sessions; it waits while the engine has too many.
    evictor : ends the call if its caller does not read.
    idle_timeout_s : most seconds without a session.

    Attributes
    ----------
    key : what sessions send to join.
    """

    def __init__(
        self,
        caller: str,
        parse: Callable[[pb.Candidates], Candidates],
        submit: Submit,
        evictor: Evictor,
        idle_timeout_s: float,
    ) -> None:
        self.caller = caller
        self.key = secrets.token_hex(16)
        self._parse = parse
        self._submit = submit
        self._evictor = evictor
        self._idle_timeout_s = idle_timeout_s
        self._sessions: dict[int, SharedSession] = {}
        self._unread: deque[tuple[int, WindowOpened | Commit | None]] = deque()
        self._has_news = asyncio.Event()
        self._is_draining = False
        self._error: Exception | None = None
        self._idle: asyncio.TimerHandle | None = None  # while it is served and no session shares it
        self._is_served = False

    @contextmanager
    def joined(
        self, number: int, session_id: str, own: EventQueue, windows: WindowSpans
    ) -> Iterator[SharedSession]:
        """Let a session take part while the body runs.

        Raises
        ------
        InvalidRequest
            if another session of the stream has that number.
        """
        if number in self._sessions:
            raise InvalidRequest(f"Session {number} shares the stream already: choose another shared_number.")
        session = SharedSession(session_id, own, windows, lambda event: self._put(number, event))
        self._sessions[number] = session
        self._watch_idle()
        try:
            yield session
        finally:
            del self._sessions[number]
            self._watch_idle()
            self._has_news.set()  # a draining server ends the call after the last session

    def drain(self) -> None:
        """End the call once no session is left.

        The server stops, the caller has nothing more to send, or there has been none for a while.
        """
        self._is_draining = True
        self._has_news.set()

    async def serve(self, requests: AsyncIterator[pb.ShareRequest]) -> AsyncGenerator[pb.ShareResponse]:
        """Yield the key, then the sessions' events.

        The end of the call ends its sessions.
        """
        reading = asyncio.create_task(self._read(requests))
        self._is_served = True
        self._watch_idle()
        try:
            yield pb.ShareResponse(key=self.key, heartbeat=_heartbeat())
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
            lost: SpecWhisperError = TargetUnavailable("The stream that this session shares has ended.")
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

    def _put(self, number: int, event: WindowOpened | Commit | None) -> None:
        self._unread.append((number, event))
        self._has_news.set()
        if len(self._unread) > MAX_UNREAD_EVENTS:
            self._end(SlowReader(f"More than {MAX_UNREAD_EVENTS} events are unread: the call has ended."))

    async def _read(self, requests: AsyncIterator[pb.ShareRequest]) -> None:
        """Pass candidates to the engine; an invalid block ends its session only."""
        try:
            async for request in _in_time(requests):
                if len(request.candidates) > MAX_BLOCKS:
                    num_blocks = len(request.candidates)
                    raise InvalidRequest(f"A request has {num_blocks} blocks; at most {MAX_BLOCKS} fit.")
                if blocks := self._blocks(request):
                    await self._submit(blocks, len(self._sessions))
            self.drain()
        except Exception as error:
            self._error = self._error or error  # the first: an evicted call also fails to be read
            self._has_news.set()

    def _blocks(self, request: pb.ShareRequest) -> list[SessionCandidates]:
        blocks = []
        for message in request.candidates:
            session = self._sessions.get(message.number)
            if session is None:  # it has ended while they were on their way
                continue
            try:
                blocks.append((session.id, self._parse(message.candidates)))
            except Exception as error:
                session.fail(error)
        return blocks

    def _watch_idle(self) -> None:
        """Limit the time without a session."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._is_served and not self._sessions:
            self._idle = asyncio.get_running_loop().call_later(self._idle_timeout_s, self.drain)

    def _end(self, error: SlowReader) -> None:
        self._error = error
        self._unread.clear()
        self._evictor.evict(error)


def _heartbeat() -> pb.Heartbeat:
    return pb.Heartbeat(sent_ns=monotonic_ns())


async def _in_time(requests: AsyncIterator[pb.ShareRequest]) -> AsyncIterator[pb.ShareRequest]:
    """Yield requests; raise :class:`IdleClient` if heartbeats stop."""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                request = await anext(requests, None)
        except TimeoutError:
            raise IdleClient(
                f"The stream that sessions share has brought nothing for {SILENCE_S:g} s, no heartbeat."
            ) from None
        if request is None:
            return
        yield request


class SharedStreams:
    """The open ``Share`` calls of a server.

    Parameters
    ----------
    max_streams : most at once.
    max_per_caller : most of a caller, by name; ``None`` for no such limit.
    """

    def __init__(self, max_streams: int, max_per_caller: int | None) -> None:
        self._max_streams = max_streams
        self._max_per_caller = max_streams if max_per_caller is None else max_per_caller
        self._by_key: dict[str, SharedStream] = {}

    @contextmanager
    def opened(self, stream: SharedStream) -> Iterator[None]:
        """Let sessions join a stream while the body runs.

        Raises
        ------
        ServerFull
            if there are too many streams; sessions need none.
        """
        of_caller = [each for each in self._by_key.values() if each.caller == stream.caller]
        if len(self._by_key) >= self._max_streams or len(of_caller) >= self._max_per_caller:
            raise ServerFull("There are as many shared streams as may be: sessions work without.")
        self._by_key[stream.key] = stream
        try:
            yield
        finally:
            del self._by_key[stream.key]

    def find(self, key: str, caller: str) -> SharedStream | None:
        """Return a caller's stream; ``None`` if it has none of that key, or no longer."""
        stream = self._by_key.get(key)
        return stream if stream is not None and stream.caller == caller else None

    def drain(self) -> None:
        """End each stream once its sessions have ended."""
        for stream in self._by_key.values():
            stream.drain()
