"""Run servers in a thread, for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc.aio

from specwhisper.rpc.channels import open_channel
from tests.nightly import NIGHTLY
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
EFFORT = float(os.environ.get("SPECWHISPER_FUZZ", 0.5 if not NIGHTLY else 1))
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


def examples(number: int) -> int:
    return max(1, round(number * EFFORT))
