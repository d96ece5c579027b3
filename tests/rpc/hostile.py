"""A draft server's end of a session, message by message."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc.aio

from experiments.common.models.scripted import VOCABULARY
from specwhisper.rpc.channels import with_true_status
from specwhisper.wire import PROTOCOL_VERSION
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import decoding_pb2, verification_pb2_grpc
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.rpc.services import RATE, Target


def hello(**changes) -> pb.VerifyRequest:
    options = {"languages": ["en"], **changes.pop("options", {})}
    fields = {
        "protocol_version": PROTOCOL_VERSION,
        "draft_model": "by-hand",
        "vocabulary_digest": VOCABULARY.digest,
        "mode": "MODE_TARGET_ONLY",
        "decoding": decoding_pb2.DecodingOptions(greedy=True, **options),
        **changes,
    }
    return pb.VerifyRequest(hello=pb.Hello(**fields))


def audio(pcm: bytes, start_sample: int = 0, **changes) -> pb.VerifyRequest:
    fields = {"encoding": "AUDIO_ENCODING_LINEAR16", "data": pcm, "start_sample": start_sample, **changes}
    return pb.VerifyRequest(audio=pb.Audio(**fields))


def whole(pcm: bytes, start_sample: int = 0, piece_s: float = 2.0) -> list[pb.VerifyRequest]:
    """Return a recording from a sample on in pieces, the last one marked."""
    size = int(piece_s * RATE) * 2
    pieces = range(start_sample * 2, len(pcm), size)
    return [audio(pcm[at : at + size], at // 2, is_last=at + size >= len(pcm)) for at in pieces]


def candidates(tokens: Iterable[int] = (), base: int = 0, **changes) -> pb.Candidates:
    return pb.Candidates(base=base, tokens=tokens, **changes)


def heartbeat(sent_ns: int = 1) -> pb.VerifyRequest:
    return pb.VerifyRequest(heartbeat=pb.Heartbeat(sent_ns=sent_ns))


Request = pb.VerifyRequest | pb.Candidates
Response = pb.VerifyResponse | pb.SharedEvent


class Shared:
    """A draft server's end of a ``Share`` call; keeps all events by session."""

    def __init__(self, stub: verification_pb2_grpc.VerificationStub, key: str = "") -> None:
        self.call = with_true_status(stub.Share())
        self.events: dict[int, list[pb.SharedEvent]] = {}
        self.key = key or secrets.token_hex(16)

    async def open(self) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader has the error
            await self.call.write(pb.ShareRequest(key=self.key))

    async def read(self) -> list[pb.SharedEvent]:
        response = await self.call.read()
        if response is grpc.aio.EOF:
            raise EOFError("The target ended the call.")
        for event in response.events:
            self.events.setdefault(event.number, []).append(event)
        return list(response.events)

    async def read_until(self, number: int, kind: str) -> None:
        """Read until the last event of a session is of this kind."""
        while not self.events.get(number) or self.events[number][-1].WhichOneof("message") != kind:
            await self.read()

    async def send(self, number: int, *blocks: pb.Candidates) -> None:
        shared = [pb.SharedCandidates(number=number, candidates=block) for block in blocks]
        await self.call.write(pb.ShareRequest(candidates=shared))

    def tokens(self, number: int) -> tuple[tuple[int, ...], ...]:
        return window_tokens(self.events[number], {})

    async def ended(self) -> None:
        """Read to the end, which must not be an error; there may be heartbeats before it."""
        with suppress(EOFError):
            while True:
                await self.read()

    async def error(self) -> Exception:
        """Read to the end, which must be an error."""
        try:
            while True:
                await self.read()
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error, "here")


class Session:
    """A session with a target; keeps all responses.

    Parameters
    ----------
    shared, number : the ``Share`` call that it joins, which others read, and its number there. By default it
        has one of its own, and reads the responses of both calls.
    """

    def __init__(self, target: Target, shared: Shared | None = None, number: int = 1) -> None:
        self.call = with_true_status(target.stub.Verify())
        self.responses: list[Response] = []
        self.shared, self.number = shared or Shared(target.stub), number
        self._reads_both = shared is None
        self._unread: deque[Response] = deque()
        self._reading: dict[str, asyncio.Task[Any]] = {}
        self._has_ended = False
        self._has_all_events = not self._reads_both

    async def send(self, *requests: Request) -> None:
        for request in requests:
            if isinstance(request, pb.Candidates):
                while self._reads_both and not (self.responses or self._unread):
                    await self._read_more()  # before its welcome the session is not in the call
                await self.shared.send(self.number, request)
                continue
            if request.HasField("hello") and not request.hello.share_key:
                if self._reads_both:
                    await self.shared.open()
                hello = pb.Hello(share_key=self.shared.key, share_number=self.number)
                hello.MergeFrom(request.hello)
                request = pb.VerifyRequest(hello=hello)
            await self.call.write(request)

    async def read(self) -> Response:
        while not self._unread:
            if self._has_ended and self._has_all_events:
                raise EOFError("The target ended the session.")
            await self._read_more()
        self.responses.append(self._unread.popleft())
        return self.responses[-1]

    async def _read_more(self) -> None:
        """Read what comes first, in the session's own call or in the shared one."""
        if not self._has_ended and "own" not in self._reading:
            self._reading["own"] = asyncio.create_task(self.call.read())
        if not self._has_all_events and "shared" not in self._reading:
            self._reading["shared"] = asyncio.create_task(self.shared.read())
        await asyncio.wait(self._reading.values(), return_when=asyncio.FIRST_COMPLETED)
        if (own := self._reading.get("own")) and own.done():
            del self._reading["own"]
            self._has_ended = own.result() is grpc.aio.EOF
            self._unread += [] if self._has_ended else [own.result()]
        if (shared := self._reading.get("shared")) and shared.done():
            del self._reading["shared"]
            try:
                events = shared.result()
            except (EOFError, grpc.aio.AioRpcError):
                self._has_all_events = True  # its own call has the error
                return
            self._has_all_events = any(event.is_finished for event in events)
            self._unread += [event for event in events if not event.is_finished]

    @property
    def opened(self) -> list[pb.WindowOpened]:
        """The windows that were read."""
        return [each.window_opened for each in self.responses if _kind(each) == "window_opened"]

    @property
    def commits(self) -> list[pb.Commit]:
        """The commits that were read."""
        return [each.commit for each in self.responses if _kind(each) == "commit"]

    async def read_until(self, kind: str, **fields) -> Any:
        """Read until a message of this kind has fields with these values."""
        while True:
            response = await self.read()
            if _kind(response) == kind:
                message = getattr(response, kind)
                if all(getattr(message, name) == value for name, value in fields.items()):
                    return message

    async def finish(self, held: Mapping[int, Sequence[int]] | None = None) -> tuple[tuple[int, ...], ...]:
        """Read to the end; return each window's tokens, after those ``held`` before."""
        try:
            while True:
                await self.read()
        except EOFError:
            return window_tokens(self.responses, held or {})

    async def error(self, requests: Sequence[Request] = ()) -> grpc.aio.AioRpcError:
        """Send requests and read to the end, which must be an error."""
        sending = asyncio.create_task(self.send(*requests))
        try:
            while True:
                await self.read()
        except grpc.aio.AioRpcError as error:
            return error
        finally:  # may be refused before the last request
            await asyncio.gather(sending, return_exceptions=True)

    def cancel(self) -> None:
        for task in self._reading.values():
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self.call.cancel()
        if self._reads_both:
            self.shared.call.cancel()


@asynccontextmanager
async def session(
    target: Target, *requests: Request, shared: Shared | None = None, number: int = 1
) -> AsyncIterator[Session]:
    """Open a session and send ``requests``; cancel it at the end."""
    opened = Session(target, shared, number)
    try:
        await opened.send(*requests)
        yield opened
    finally:
        opened.cancel()


def _kind(response: Response) -> str | None:
    return response.WhichOneof("message")


def window_tokens(
    responses: Iterable[Response], held: Mapping[int, Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Join commits by position; return the tokens of each window."""
    windows = {window_id: list(tokens) for window_id, tokens in held.items()}
    for response in responses:
        if _kind(response) == "commit":
            commit = response.commit
            tokens = windows.setdefault(commit.window_id, [])
            assert commit.base <= len(tokens), "a commit leaves a gap"
            tokens[commit.base :] = commit.tokens
    return tuple(tuple(windows[i]) for i in sorted(windows))
