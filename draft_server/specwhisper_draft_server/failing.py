"""A draft server that fails where it is told to; see :mod:`specwhisper.observe.failpoints`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from specwhisper.model.model import Model
from specwhisper.observe.failpoints import FailingModel, Failpoints
from specwhisper.transcription.transcriber import TargetStream, Transcriber
from specwhisper.types import Commit, WindowOpened
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.drafting import PlaceDraft
from specwhisper_draft_server.service import TranscriptionService


class Failing:
    """Makes the parts of a draft server that pass failpoints."""

    def __init__(self, failpoints: Failpoints) -> None:
        self._failpoints = failpoints

    def place(self, place: PlaceDraft) -> PlaceDraft:
        """Place a draft model whose steps are ``draft``."""
        return lambda target: cast(Model, FailingModel(place(target), self._failpoints, "draft"))

    def transcriber(self, transcriber: Transcriber) -> Transcriber:
        """Give a way to the target that takes in what it says as ``receive``."""
        return cast(Transcriber, _FailingTranscriber(transcriber, self._failpoints))

    def service(self, *args: Any) -> TranscriptionService:
        """Give a service that answers streams as ``reply``."""
        return _FailingService(self._failpoints, *args)


class _FailingTranscriber:
    def __init__(self, transcriber: Transcriber, failpoints: Failpoints) -> None:
        self._transcriber = transcriber
        self._failpoints = failpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transcriber, name)

    async def find_room(self, *args: Any, **kwargs: Any) -> Transcriber:
        room = await self._transcriber.find_room(*args, **kwargs)
        return cast(Transcriber, _FailingTranscriber(room, self._failpoints))

    @asynccontextmanager
    async def open(self, *args: Any, **kwargs: Any) -> AsyncIterator[TargetStream]:
        async with self._transcriber.open(*args, **kwargs) as session:
            yield cast(TargetStream, _FailingTargetStream(session, self._failpoints))


class _FailingTargetStream:
    def __init__(self, session: TargetStream, failpoints: Failpoints) -> None:
        self._session = session
        self._failpoints = failpoints

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        async for event in self._session.events():
            self._failpoints.hit("receive.before")
            yield event
            self._failpoints.hit("receive.after")


class _FailingService(TranscriptionService):
    def __init__(self, failpoints: Failpoints, *args: Any) -> None:
        super().__init__(*args)
        self._failpoints = failpoints

    async def transcribe(
        self, requests: AsyncIterator[pb.StreamingRecognizeRequest]
    ) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
        async with aclosing(super().transcribe(requests)) as responses:
            async for response in responses:
                self._failpoints.hit("reply.before")
                yield response
                self._failpoints.hit("reply.after")
