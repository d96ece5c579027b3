"""The front: one address that leads to many targets. It tells where there is room; sessions go there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, TypeVar

from google.protobuf.message import Message
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import InvalidRequest, ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.wire.access import caller
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Verification"].full_name
ANSWER_S = 5.0
MAX_FULL = 2  # times that another target is asked where one has no room

Reply = TypeVar("Reply", bound=Message)


class FrontService(verification_pb2_grpc.VerificationServicer):
    """Answers what a target would, but for sessions.

    Parameters
    ----------
    targets : the deployment that has a replica answer, the one with the fewest sessions.
    """

    def __init__(self, targets: DeploymentHandle) -> None:
        self._targets = targets

    async def Locate(self, request: pb.LocateRequest, context: Any) -> pb.LocateResponse:
        """Name a target that has room, with the right to open a session there."""
        for _ in range(MAX_FULL):  # what is known of them is a second old: the emptiest may have filled up
            with suppress(ServerFull):
                return await self._ask("locate", request, pb.LocateResponse)
        return await self._ask("locate", request, pb.LocateResponse)

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        """Tell what the targets are; all are of one checkpoint."""
        return await self._ask("describe", request, pb.DescribeResponse)

    async def Verify(self, requests: Any, context: Any) -> None:
        """Refuse: no session passes through here."""
        raise InvalidRequest("This address leads to targets: ask Locate, and open the session where it says.")

    async def _ask(self, method: str, request: Message, kind: type[Reply]) -> Reply:
        asked = getattr(self._targets, method).remote(request.SerializeToString(), caller.get())
        try:
            async with asyncio.timeout(ANSWER_S):
                return kind.FromString(await asked)
        except RayTaskError as error:
            if isinstance(error.cause, SpecWhisperError):
                raise error.cause from None
            raise
        except TimeoutError:
            asked.cancel()
            raise TargetUnavailable(f"No target has answered the front within {ANSWER_S:g} s.") from None
        except (RayError, RayServeException) as error:  # one died while it was asked, or there is none
            name = type(error).__name__
            raise TargetUnavailable(f"No target answers the front ({name}); try again.") from error
