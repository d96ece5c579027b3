"""The front: one address that leads to many targets. It tells where there is room; sessions go there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from deploy.answers import Reply, read_answer
from specwhisper.errors import InvalidRequest, ServerFull, TargetUnavailable
from specwhisper.wire.access import caller
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Verification"].full_name
ANSWER_S = 2.0  # for all targets that are asked; draft servers wait longer, and so learn what is wrong
MAX_FULL = 2  # times that another target is asked where one has no room


class FrontService(verification_pb2_grpc.VerificationServicer):
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
        return await self._in_time(self._locate(request.SerializeToString()))

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        """Tell what the targets are; all are of one checkpoint."""
        asked = request.SerializeToString()
        return await self._in_time(self._ask(pb.DescribeResponse, self._targets.describe, asked))

    async def Verify(self, requests: Any, context: Any) -> None:
        """Refuse: no session passes through here."""
        raise InvalidRequest("This address leads to targets: ask Locate, and open the session where it says.")

    async def _locate(self, request: bytes) -> pb.LocateResponse:
        ask = partial(self._ask, pb.LocateResponse, self._targets.locate, request, caller.get())
        for _ in range(MAX_FULL):  # what is known of them is a second old: the emptiest may have filled up
            with suppress(ServerFull):
                return await ask()
        return await ask()

    async def _in_time(self, answer: Awaitable[Reply]) -> Reply:
        try:
            async with asyncio.timeout(self._answer_s):
                return await answer
        except TimeoutError:
            raise TargetUnavailable(
                f"No target has answered the front within {self._answer_s:g} s; try again."
            ) from None

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
            raise TargetUnavailable(f"No target answers the front ({name}); try again.") from error
