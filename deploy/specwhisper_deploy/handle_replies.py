"""A target's replies to its locator over a Serve handle.

Messages are sent as bytes, refusals as values.
"""

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
    from specwhisper_target_server.service import VerificationService  # a locator needs no engine

Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error that a target returns instead of a message.

    Attributes
    ----------
    name : of its class in :mod:`specwhisper.errors`.
    message : its sentence.
    """

    name: str
    message: str


HandleReply = bytes | ErrorReply


def parse_reply(reply: HandleReply, kind: type[Reply]) -> Reply:
    """Return the message of a reply, or raise its error."""
    if isinstance(reply, ErrorReply):
        raise ERROR_BY_NAME.get(reply.name, SpecWhisperError)(reply.message)
    return kind.FromString(reply)


def _as_handle_reply(method: Callable[..., Awaitable[Message]]) -> Callable[..., Awaitable[HandleReply]]:
    """Wrap a method: serialize its message, and return the error that it raises.

    Serve logs every exception that crosses a handle as a failure, with its traceback.
    """

    @wraps(method)
    async def reply(*args: Any) -> HandleReply:
        try:
            return (await method(*args)).SerializeToString()
        except SpecWhisperError as error:
            return ErrorReply(type(error).__name__, str(error))

    return reply


class TargetHandler:
    """Handles the locator's calls to one target.

    Parameters
    ----------
    service : the target.
    address : where draft servers reach it.
    """

    def __init__(self, service: VerificationService, address: str) -> None:
        self._service = service
        self._address = address

    @_as_handle_reply
    async def locate(self, request: bytes, caller: str, known_first: bool = False) -> pb.LocateResponse:
        """Answer ``Locate`` for a caller of the locator.

        Only the router reads ``known_first``.
        """
        response = await self._service.locate(pb.LocateRequest.FromString(request), caller)
        response.address = self._address
        return response

    @_as_handle_reply
    async def describe(self, request: bytes) -> pb.DescribeResponse:
        """Answer ``Describe``, which is the same for every caller."""
        return await self._service.Describe(pb.DescribeRequest.FromString(request), None)
