"""A target that fails where it is told to; see :mod:`specwhisper.observe.failpoints`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

from specwhisper.engine.engine_thread import EngineThread
from specwhisper.model.faults import leave_process
from specwhisper.model.model import Model
from specwhisper.observe.failpoints import FailingModel, FailpointReached, Failpoints
from specwhisper.types import Commit, Failed, FromTarget
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper_target_server.service import VerificationService

Observe = Callable[[Sequence[tuple[str, FromTarget]]], None]


class Failing:
    """Makes the parts of a target that pass failpoints."""

    def __init__(self, failpoints: Failpoints) -> None:
        self._failpoints = failpoints

    def model(self, model: Model) -> Model:
        """Give a model whose passes are ``verify``."""
        return cast(Model, FailingModel(model, self._failpoints, "verify"))

    def thread(self, observe: Observe) -> EngineThread[FromTarget]:
        """Give a thread that hands over commits as ``commit``."""
        return _FailingThread(self._failpoints, observe)

    def service(self, *args: Any, **kwargs: Any) -> VerificationService:
        """Give a service that sends windows and commits as ``send``."""
        return _FailingService(self._failpoints, *args, **kwargs)


class _FailingThread(EngineThread[FromTarget]):
    def __init__(self, failpoints: Failpoints, observe: Observe) -> None:
        super().__init__("verifier", leave_process, observe)
        self._failpoints = failpoints

    def _deliver(self, events: Sequence[tuple[str, FromTarget]]) -> None:
        if not any(isinstance(event, Commit) for _, event in events):
            super()._deliver(events)
            return
        try:
            self._failpoints.hit("commit.before")
            super()._deliver(events)
            self._failpoints.hit("commit.after")
        except FailpointReached as error:
            self._deliver_to_all(Failed(error))  # as with any bug of the engine


class _FailingService(VerificationService):
    def __init__(self, failpoints: Failpoints, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._failpoints = failpoints

    async def Verify(
        self, requests: AsyncIterator[pb.VerifyRequest], context: Any
    ) -> AsyncIterator[pb.VerifyResponse]:
        async with aclosing(super().Verify(requests, context)) as responses:  # type: ignore[type-var]
            async for response in responses:
                if response.WhichOneof("message") not in ("window_opened", "commit"):
                    yield response
                    continue
                self._failpoints.hit("send.before")
                yield response
                self._failpoints.hit("send.after")
