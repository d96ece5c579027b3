"""``Share``: the call in which all sessions at a target send candidates and receive windows and commits.

A gRPC message costs the same however small it is. So waiting candidates are sent together, and windows and
commits arrive together. Everything else of a session has its own call (:mod:`.grpc_target_stream`). Each call
has its own heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from itertools import count
from time import monotonic_ns

import grpc.aio

from specwhisper.errors import (
    PairMismatch,
    SlowReader,
    SpecWhisperError,
    TargetUnavailable,
    Unauthenticated,
)
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import Candidates
from specwhisper.wire import HEARTBEAT_S, SILENCE_S, codec
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

logger = logging.getLogger(__name__)

MAX_BLOCKS = 256  # in one request


def error_of_target(failure: grpc.aio.AioRpcError, address: str) -> SpecWhisperError:
    """Return the error of a call to a target.

    A refused token is this server's own; clients must not believe that theirs was refused.
    """
    error = error_from_rpc(failure, f"target {address}")
    if isinstance(error, Unauthenticated):
        return PairMismatch(
            f"Target {address} refuses this draft server's token: check --target-token-file here, and the "
            "target's --tokens-file."
        )
    return error


# Takes a session's events, and the error with which the call ends.
Receive = Callable[[pb.SharedEvent | Exception], None]


class CandidateChannel:
    """One ``Share`` call, from the first session at a target to the last.

    Sessions join before the target has answered, so a session opens in one round trip.

    Attributes
    ----------
    key : part of the hello of a session that joins.
    blocks : candidates to be sent, each with its session's number; after ``None`` no more are sent.
    is_over : whether the call has ended, so that the next session needs another one.
    """

    def __init__(self, address: str, stub: verification_pb2_grpc.VerificationStub) -> None:
        self.key = secrets.token_hex(16)
        self.blocks: asyncio.Queue[tuple[int, Candidates] | None] = asyncio.Queue()
        self.is_over = False
        self._address = address
        self._sessions: dict[int, Receive] = {}
        self._numbers = count(1)
        self._has_begun = False  # whether the target has answered
        # In its own context, since the call belongs to no session's request. It opens now, before the
        # session's own call.
        context = Context()
        self._call = context.run(lambda: with_true_status(stub.Share(self._requests())))
        self._running = asyncio.create_task(self._run(), context=context)

    def join(self, receive: Receive) -> int:
        """Return the number of a session that joins."""
        number = next(self._numbers)
        self._sessions[number] = receive
        return number

    def leave(self, number: int) -> None:
        """End a session's part; the last one ends the call."""
        del self._sessions[number]
        if not self._sessions:
            self._end()
            self._call.cancel()
            self._running.cancel()

    def _end(self) -> None:
        self.is_over = True
        self.blocks.put_nowait(None)  # gRPC does not stop the iteration of requests when the call ends

    async def _run(self) -> None:
        error: Exception = TargetUnavailable(f"Target {self._address} has ended the call of its sessions.")
        try:
            await self._receive()
        except grpc.aio.AioRpcError as failure:
            reason = error_of_target(failure, self._address)
            logger.info("call for candidates ended", extra={"target": self._address, "error": str(reason)})
            if not self._has_begun or isinstance(reason, SlowReader):  # a refusal: sessions don't begin
                error = reason
        except TargetUnavailable as silence:
            logger.info("call for candidates ended", extra={"target": self._address, "error": str(silence)})
            error = silence
        except Exception:  # a bug; sessions resume
            logger.exception("call for candidates ended", extra={"target": self._address})
        finally:
            self._end()
            for receive in self._sessions.values():
                receive(error)

    async def _receive(self) -> None:
        responses = aiter(self._call)
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    response = await anext(responses, None)
            except TimeoutError:
                self._call.cancel()
                raise TargetUnavailable(
                    f"Target {self._address} has sent nothing for {SILENCE_S:g} s in the call of its "
                    "sessions, not even a heartbeat."
                ) from None
            if response is None:
                return
            self._has_begun = True
            for event in response.events:
                if (receive := self._sessions.get(event.number)) is not None:
                    receive(event)

    async def _requests(self) -> AsyncIterator[pb.ShareRequest]:
        yield pb.ShareRequest(key=self.key)
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    waiting = [await self.blocks.get()]
            except TimeoutError:
                yield pb.ShareRequest(heartbeat=pb.Heartbeat(sent_ns=monotonic_ns()))
                continue
            while len(waiting) < MAX_BLOCKS and not self.blocks.empty():
                waiting.append(self.blocks.get_nowait())
            request = pb.ShareRequest()
            for block in waiting:
                if block is None:
                    return
                number, candidates = block
                codec.candidates_to_proto(candidates, request.candidates.add(number=number).candidates)
            yield request
