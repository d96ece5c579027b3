"""Servers in a thread, for tests that are not asynchronous, and sessions with them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import grpc.aio
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from specwhisper.rpc.channels import open_channel
from specwhisper.wire.v1 import verification_pb2 as pb
from tests.nightly import NIGHTLY
from tests.rpc.hostile import Request, Session, Shared, audio
from tests.rpc.services import (
    Draft,
    Target,
    all_free,
    draft_server,
    expected_finals,
    finals,
    recording,
    stream,
    target_alone,
    target_server,
)

T = TypeVar("T")
# SPECWHISPER_FUZZ=50 runs fifty times as many examples.
EFFORT = float(os.environ.get("SPECWHISPER_FUZZ", 1 if NIGHTLY else 0.25))
CALL_S = 20.0


class Running:
    """A scripted target and a draft server, with an untyped channel to each."""

    target: Target
    draft: Draft
    channels: dict[str, grpc.aio.Channel]

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(3 * CALL_S)

    def check(self) -> None:
        """Check that no session is left, and that the next one gets its text."""
        self.run(all_free(self.target, self.draft))
        responses = self.run(stream(self.draft, recording(1.0)))
        assert finals(responses) == expected_finals(target_alone(1.0))
        self.run(all_free(self.target, self.draft))

    async def serve(self, ready: threading.Event) -> None:
        async with (
            target_server() as self.target,
            draft_server(self.target.address, resume_timeout_s=1.0) as self.draft,
            open_channel(self.target.address) as target,
            open_channel(self.draft.address) as draft,
        ):
            self.channels = {"target": target, "draft": draft}
            ready.set()
            await self._stop.wait()

    @contextmanager
    def in_thread(self) -> Iterator[Running]:
        ready = threading.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self.serve(ready),))
        thread.start()
        try:
            if not ready.wait(60):
                raise TimeoutError("The servers did not start.")
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            self._loop.close()


class Speaking:
    """A session to which a recording is sent piece by piece.

    Attributes
    ----------
    session, reading : the session, and a task that reads all its responses.
    sent_to : sample.
    """

    session: Session
    reading: asyncio.Task[None]

    def __init__(self, running: Running, length_s: float, seed: int, piece: int) -> None:
        self.running = running
        self.pcm = recording(length_s, seed)
        self.expected = target_alone(length_s, seed).window_tokens
        self.sent_to = 0
        self._piece = piece  # samples

    @property
    def has_sent_all(self) -> bool:
        return 2 * self.sent_to >= len(self.pcm)

    def piece(self, start: int) -> pb.VerifyRequest:
        end = start + self._piece
        return audio(self.pcm[2 * start : 2 * end], start, is_last=2 * end >= len(self.pcm))

    def send_piece(self) -> None:
        if not self.has_sent_all:
            self.running.run(send(self.session, self.piece(self.sent_to)))
            self.sent_to += self._piece

    def send_all(self) -> None:
        while not self.has_sent_all:
            self.send_piece()

    def leave(self) -> None:
        self.running.run(self.cancel())

    async def cancel(self) -> None:
        self.reading.cancel()
        self.session.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)


async def send(session: Session, *requests: Request) -> None:
    """Send messages until the session ends."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # a write to an ended call
        await session.send(*requests)


async def read_all(session: Session | Shared) -> None:
    with suppress(EOFError):
        while True:
            await session.read()


def examples(number: int) -> int:
    return max(1, round(number * EFFORT))


def fuzzed(number: int = 100, **changes: Any) -> settings:
    return settings(max_examples=examples(number), suppress_health_check=list(HealthCheck), **changes)


def explore(machine: type[RuleBasedStateMachine], running: Running, number: int, num_steps: int) -> None:
    """Run a state machine, of which ``running`` are the servers."""
    own = type(machine.__name__, (machine,), {"running": running})
    run_state_machine_as_test(own, settings=fuzzed(number, stateful_step_count=num_steps))
