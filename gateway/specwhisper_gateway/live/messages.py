"""What the page says: how to transcribe, and how to go on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from specwhisper.audio.canonical import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from specwhisper.live import LiveOptions, StabilityPolicy
from specwhisper.types import Mode
from specwhisper_gateway.errors import InvalidEvent
from specwhisper_gateway.transport.messages import StrictModel, first_problem, read_object


class _Way(StrictModel):
    """How draft and target work together; ``None`` leaves it to the server, and a gamma of 0 does."""

    mode: Literal[Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL] | None = None
    gamma: Annotated[int, Field(ge=0, le=64)] = 0
    added_latency_ms: Annotated[int, Field(ge=0, le=2_000)] = 0


class Position(StrictModel):
    """Where a stream goes on: as an update told it."""

    start_sample: Annotated[int, Field(ge=0, le=2**62)] = 0
    num_utterances: Annotated[int, Field(ge=0, lt=2**31)] = 0
    final_tokens: Annotated[
        list[Annotated[int, Field(ge=0, lt=2**31)]],
        Field(default_factory=list, max_length=1024, fail_fast=True),
    ]


class Start(_Way):
    """Begin; audio of this rate, in Hz, follows."""

    type: Literal["start"]
    sample_rate: Annotated[int, Field(ge=MIN_SAMPLE_RATE, le=MAX_SAMPLE_RATE)]
    language: str | None = None
    step_ms: Annotated[int, Field(ge=100, le=10_000)] = LiveOptions().step_ms
    policy: StabilityPolicy = LiveOptions().policy
    position: Position = Position(final_tokens=[])


class Change(_Way):
    """Go on in another way."""

    type: Literal["change"]


class Finish(StrictModel):
    """No audio follows."""

    type: Literal["finish"]


Message = Start | Change | Finish
_MESSAGES: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


async def read_message(frame: str) -> Message:
    """Parse and validate a control message; :class:`InvalidEvent` names the first thing that is wrong."""
    try:
        return _MESSAGES.validate_python(await read_object(frame))
    except ValidationError as error:
        problem = first_problem(error)
        name = ".".join(problem.path[1:])  # the first part is the message's type
        raise InvalidEvent(
            f"The message cannot be honoured: {name or 'type'}: {problem.reason}.", name
        ) from None
