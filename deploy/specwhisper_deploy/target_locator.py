"""The locator: one address that leads to many targets. It tells where there is room; sessions go there."""

from __future__ import annotations

import asyncio
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import (
    RETRY_OTHER_TARGET,
    InvalidRequest,
    PairMismatch,
    SpecWhisperError,
    TargetUnavailable,
)
from specwhisper.rpc.access import caller
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_deploy.handle_answers import Reply, read_answer

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Verification"].full_name
ANSWER_S = 2.0  # for all targets that are asked; draft servers wait longer, and so learn what is wrong
TRIES = 3  # targets asked: the next where one is full, gone or no match, or takes its part of that time


class TargetLocatorService(verification_pb2_grpc.VerificationServicer):
    """Answers what a target would, but for sessions.

    Parameters
    ----------
    targets : the deployment that has a replica answer, the one with the fewest sessions.
    answer_s : how long they may take.
    """

    def __init__(self, targets: DeploymentHandle, answer_s: float = ANSWER_S) -> None:
        self._targets = targets
        self._answer_s = answer_s

    async def Locate(self, request: pb.LocateRequest, context: Any) -> pb.LocateResponse:
        """Name a target that has room, with the right to open a session there."""
        asked = request.SerializeToString(), caller.get()
        return await self._ask_some(pb.LocateResponse, self._targets.locate, *asked)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        """Tell what a target is; all are of one checkpoint, except while it is replaced by another."""
        asked = request.SerializeToString()
        return await self._ask_some(pb.DescribeResponse, self._targets.describe, asked)

    async def Verify(self, requests: Any, context: Any) -> None:
        """Refuse: no session passes through here."""
        raise InvalidRequest("This address leads to targets: ask Locate, and open the session where it says.")

    async def _ask_some(self, kind: type[Reply], method: Any, *args: Any) -> Reply:
        refusal: SpecWhisperError
        refusal = silence = TargetUnavailable(
            f"No target has answered the locator within {self._answer_s:g} s; try again."
        )
        asked: list[asyncio.Task[Reply]] = []
        # After a mismatch, targets known to match go first: new ones may all be of other weights.
        known_first: tuple[bool, ...] = ()
        try:
            for _ in range(TRIES):
                asked.append(asyncio.create_task(self._ask(kind, method, *args, *known_first)))
                open_ones = [question for question in asked if not question.done()]
                answered, _ = await asyncio.wait(
                    open_ones, timeout=self._answer_s / TRIES, return_when=asyncio.FIRST_COMPLETED
                )
                for question in answered:
                    try:
                        return question.result()
                    except RETRY_OTHER_TARGET as error:  # what is known of it was a second old
                        known_first = (True,) if isinstance(error, PairMismatch) else known_first
                        if refusal is silence or not isinstance(error, PairMismatch):
                            refusal = error
            raise refusal
        finally:
            for question in asked:
                question.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, kind: type[Reply], method: Any, *args: Any) -> Reply:
        asked = method.remote(*args)
        try:
            return read_answer(await asked, kind)
        except asyncio.CancelledError:  # nobody waits for it any more
            asked.cancel()
            raise
        except RayTaskError:  # a bug, there
            raise
        except (RayError, RayServeException) as error:  # one died while it was asked, or there is none
            name = type(error).__name__
            raise TargetUnavailable(f"No target answers the locator ({name}); try again.") from error
