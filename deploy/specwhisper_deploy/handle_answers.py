"""What a target tells the locator over a Serve handle: messages as bytes, and refusals as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from specwhisper.errors import SpecWhisperError
from specwhisper.wire.status import ERROR_BY_NAME
from specwhisper.wire.v1 import verification_pb2 as pb

if TYPE_CHECKING:
    from specwhisper_target_server.service import (
        VerificationService,  # loads torch, which a locator has no use for
    )

Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a target does not do what it was asked for.

    Attributes
    ----------
    error : name of the error's class, of :mod:`specwhisper.errors`.
    reason : its sentence.
    """

    error: str
    reason: str


Told = bytes | Refusal


def read_answer(told: Told, kind: type[Reply]) -> Reply:
    """Give the message that was told, or raise the error of a refusal."""
    if isinstance(told, Refusal):
        raise ERROR_BY_NAME.get(told.error, SpecWhisperError)(told.reason)
    return kind.FromString(told)


def _as_value(answer: Callable[..., Awaitable[Message]]) -> Callable[..., Awaitable[Told]]:
    """Have a refusal returned: Serve logs whatever is raised as a failure, with its traceback."""

    @wraps(answer)
    async def tell(*args: Any) -> Told:
        try:
            return (await answer(*args)).SerializeToString()
        except SpecWhisperError as error:
            return Refusal(type(error).__name__, str(error))

    return tell


class TargetAnswers:
    """Answers the locator for one target.

    Parameters
    ----------
    service : the target.
    address : where draft servers reach it.
    """

    def __init__(self, service: VerificationService, address: str) -> None:
        self._service = service
        self._address = address

    @_as_value
    async def locate(self, request: bytes, caller: str, known_first: bool = False) -> pb.LocateResponse:
        """Answer ``Locate`` for a caller that the locator names; ``known_first`` is for the router."""
        place = await self._service.locate(pb.LocateRequest.FromString(request), caller)
        place.address = self._address
        return place

    @_as_value
    async def describe(self, request: bytes) -> pb.DescribeResponse:
        """Answer ``Describe``, which is the same for every caller."""
        return await self._service.Describe(pb.DescribeRequest.FromString(request), None)
