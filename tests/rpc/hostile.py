"""A draft server's end of a session, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

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


def candidates(tokens: Iterable[int] = (), base: int = 0, **changes) -> pb.VerifyRequest:
    return pb.VerifyRequest(candidates=pb.Candidates(base=base, tokens=tokens, **changes))


class Session:
    """A session with a target; keeps all responses."""

    def __init__(self, target: Target) -> None:
        self.call = with_true_status(target.stub.Verify())
        self.responses: list[pb.VerifyResponse] = []

    async def send(self, *requests: pb.VerifyRequest) -> None:
        for request in requests:
            await self.call.write(request)

    async def read(self) -> pb.VerifyResponse:
        response = await self.call.read()
        if response is grpc.aio.EOF:
            raise EOFError("The target ended the session.")
        self.responses.append(response)
        return response

    async def read_until(self, kind: str, **fields) -> pb.VerifyResponse:
        """Read until a message of this kind has fields with these values."""
        while True:
            response = await self.read()
            message = getattr(response, kind)
            if response.WhichOneof("message") == kind and all(
                getattr(message, name) == value for name, value in fields.items()
            ):
                return message

    async def finish(self, held: Mapping[int, Sequence[int]] | None = None) -> tuple[tuple[int, ...], ...]:
        """Read to the end; return each window's tokens, after those ``held`` before."""
        try:
            while True:
                await self.read()
        except EOFError:
            return window_tokens(self.responses, held or {})

    async def error(self, requests: Sequence[pb.VerifyRequest] = ()) -> grpc.aio.AioRpcError:
        """Send requests and read to the end, which must be an error."""
        sending = asyncio.create_task(self.send(*requests))
        try:
            while True:
                await self.read()
        except grpc.aio.AioRpcError as error:
            return error
        finally:  # may be refused before the last request
            await asyncio.gather(sending, return_exceptions=True)


@asynccontextmanager
async def session(target: Target, *requests: pb.VerifyRequest) -> AsyncIterator[Session]:
    """Open a session and send ``requests``; cancel it at the end."""
    opened = Session(target)
    try:
        await opened.send(*requests)
        yield opened
    finally:
        opened.call.cancel()


class Shared:
    """A draft server's end of a shared stream; keeps all events by session."""

    def __init__(self, stub: verification_pb2_grpc.VerificationStub) -> None:
        self.call = with_true_status(stub.Share())
        self.events: dict[int, list[pb.SharedEvent]] = {}
        self.key = ""

    async def read(self) -> None:
        response = await self.call.read()
        if response is grpc.aio.EOF:
            raise EOFError("The target ended the stream.")
        self.key = self.key or response.key
        for event in response.events:
            self.events.setdefault(event.number, []).append(event)

    async def read_until(self, number: int, kind: str) -> None:
        """Read until the last event of a session is of this kind."""
        while not self.events.get(number) or self.events[number][-1].WhichOneof("message") != kind:
            await self.read()

    async def send(self, number: int, *blocks: pb.VerifyRequest) -> None:
        shared = [pb.SharedCandidates(number=number, candidates=block.candidates) for block in blocks]
        await self.call.write(pb.ShareRequest(candidates=shared))

    def tokens(self, number: int) -> tuple[tuple[int, ...], ...]:
        return window_tokens(self.events[number], {})

    async def error(self) -> Exception:
        """Read to the end, which must be an error."""
        try:
            while True:
                await self.read()
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error, "here")


def window_tokens(
    responses: Iterable[pb.VerifyResponse | pb.SharedEvent], held: Mapping[int, Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Join commits by position; return the tokens of each window."""
    windows = {window_id: list(tokens) for window_id, tokens in held.items()}
    for response in responses:
        commit = response.commit
        if response.WhichOneof("message") == "commit":
            tokens = windows.setdefault(commit.window_id, [])
            assert commit.base <= len(tokens), "a commit leaves a gap"
            tokens[commit.base :] = commit.tokens
    return tuple(tuple(windows[i]) for i in sorted(windows))
