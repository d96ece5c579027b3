"""Messages of the page: start, change and finish a transcription."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Base64Bytes, Field, TypeAdapter, ValidationError

from specwhisper.audio.canonical import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from specwhisper.types import Mode
from specwhisper_client.updates import ResumePoint
from specwhisper_gateway.errors import InvalidEvent
from specwhisper_gateway.transport.messages import StrictModel, first_problem, read_object

MAX_STATE_CHARACTERS = 16_384  # of base64; more than any state has


class _Drafting(StrictModel):
    """Whether to draft; ``None`` leaves it to the server."""

    mode: Literal[Mode.TARGET_ONLY, Mode.FULL] | None = None
    added_latency_ms: Annotated[int, Field(ge=0, le=2_000)] = 0


Sample = Annotated[int, Field(ge=0, le=2**62)]


class Point(StrictModel):
    """Where a stream continues, as the last update reported it."""

    state: Annotated[Base64Bytes, Field(max_length=MAX_STATE_CHARACTERS)]
    start_sample: Sample
    num_ends: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def read(self) -> ResumePoint:
        return ResumePoint(self.state, self.start_sample, self.num_ends)


class Start(_Drafting):
    """Start a transcription; audio of this sample rate, in Hz, follows."""

    type: Literal["start"]
    sample_rate: Annotated[int, Field(ge=MIN_SAMPLE_RATE, le=MAX_SAMPLE_RATE)]
    languages: Annotated[str, Field(max_length=1000)] = ""  # as "en,fr"; none detects among all
    resume_point: Point | None = None
    speakers: bool = False  # whether to name them, if the gateway has models for speakers


class Change(_Drafting):
    type: Literal["change"]


class Finish(StrictModel):
    type: Literal["finish"]


Message = Start | Change | Finish
_MESSAGES: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


async def read_message(frame: str) -> Message:
    """Parse and validate a control message.

    Raises :class:`InvalidEvent` for its first error.
    """
    try:
        return _MESSAGES.validate_python(await read_object(frame))
    except ValidationError as error:
        problem = first_problem(error)
        name = ".".join(problem.path[1:])  # the first part is the message's type
        raise InvalidEvent(f"The message is invalid: {name or 'type'}: {problem.reason}.", name) from None
