"""The parts of servers, wrapped so that they hit failpoints."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from specwhisper.types import Commit, Failed

Hit = Callable[[str], None]


class FailingModel:
    """A model whose forward passes hit ``STEP.before`` and ``STEP.after``."""

    def __init__(self, model: Any, hit: Hit, step: str) -> None:
        self._model = model
        self._hit = hit
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def score(self, rows: Any) -> Any:
        """Run a forward pass of the model."""
        self._hit(f"{self._step}.before")
        scores = self._model.score(rows)
        self._hit(f"{self._step}.after")
        return scores


class FailingTranscriber:
    """A transcriber whose target streams hit ``receive`` for each event."""

    def __init__(self, transcriber: Any, hit: Hit) -> None:
        self._transcriber = transcriber
        self._hit = hit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transcriber, name)

    async def find_room(self, *args: Any, **kwargs: Any) -> FailingTranscriber:
        """Return a transcriber with a free slot."""
        return FailingTranscriber(await self._transcriber.find_room(*args, **kwargs), self._hit)

    @asynccontextmanager
    async def open(self, *args: Any, **kwargs: Any) -> AsyncIterator[FailingTargetStream]:
        """Open a session."""
        async with self._transcriber.open(*args, **kwargs) as stream:
            yield FailingTargetStream(stream, self._hit)


class FailingTargetStream:
    """A target stream that hits ``receive`` for each event."""

    def __init__(self, stream: Any, hit: Hit) -> None:
        self._stream = stream
        self._hit = hit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def on_answer(self) -> Any:
        """Called by the stream with the timing of each commit."""
        return self._stream.on_answer

    @on_answer.setter
    def on_answer(self, on_answer: Any) -> None:
        self._stream.on_answer = on_answer

    async def events(self) -> AsyncIterator[Any]:
        """Yield the events of the stream."""
        async for event in self._stream.events():
            self._hit("receive.before")
            yield event
            self._hit("receive.after")


def fail_commits(thread: Any, hit: Hit, error: type[Exception]) -> None:
    """Let an engine's thread hit ``commit`` when it delivers commits.

    ``error`` then fails its sessions.
    """
    deliver = thread._deliver

    def failing(events: Sequence[tuple[str, object]]) -> None:
        if not any(isinstance(event, Commit) for _, event in events):
            deliver(events)
            return
        try:
            hit("commit.before")
            deliver(events)
            hit("commit.after")
        except error as reached:
            thread._deliver_to_all(Failed(reached))  # as after a bug of the engine

    thread._deliver = failing


def fail_responses(
    service: Any, method: str, hit: Hit, step: str, is_counted: Callable[[Any], bool] = lambda _: True
) -> None:
    """Let a streaming method hit ``STEP.before`` and ``STEP.after`` per response."""
    respond = getattr(service, method)

    async def failing(*args: Any) -> AsyncGenerator[Any]:
        async with aclosing(respond(*args)) as responses:
            async for response in responses:
                if not is_counted(response):
                    yield response
                    continue
                hit(f"{step}.before")
                yield response
                hit(f"{step}.after")

    setattr(service, method, failing)


def has_events(response: Any) -> bool:
    """Return whether a response of ``Share`` carries events of the engine."""
    return bool(response.events)
