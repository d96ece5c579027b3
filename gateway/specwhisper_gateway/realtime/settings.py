"""What a realtime session can be set to: OpenAI's session object in both its shapes, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from specwhisper.live import EndpointingOptions
from specwhisper.options import DecodingOptions
from specwhisper_client.streaming import LIVE_DECODING
from specwhisper_gateway.errors import InvalidEvent
from specwhisper_gateway.routers.models import WHISPER_1
from specwhisper_gateway.transport.messages import SHOWN_CHARS, UNKNOWN, StrictModel, first_problem

SAMPLE_RATE = 24_000  # what pcm16 means to OpenAI
NO_LOGPROBS = "a draft server does not tell each token's log-probability"
NOBODY_ANSWERS = "nobody answers in a transcription session"


_Words = Annotated[list[str], Field(fail_fast=True)]


class _Format(StrictModel):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24_000, 16_000] = 24_000


class _Transcription(StrictModel):
    model: str | None = None
    language: str | None = None
    languages: _Words | None = None
    prompt: str | None = None
    keywords: _Words | None = None
    delay: Annotated[None, Field(description="Text is told as soon as it is final.")] = None


class _TurnDetection(StrictModel):
    type: Literal["server_vad"] = "server_vad"
    # The bounds are those of EndpointingOptions; without them a number may be too large to compare.
    threshold: Annotated[float | None, Field(ge=0.05, le=0.95)] = None
    prefix_padding_ms: Annotated[int | None, Field(ge=0, le=2_000)] = None
    silence_duration_ms: Annotated[int | None, Field(ge=32, le=10_000)] = None
    create_response: Literal[False] | None = None
    interrupt_response: Literal[False] | None = None
    idle_timeout_ms: None = None


class _Input(StrictModel):
    format: _Format | None = None
    noise_reduction: None = None
    transcription: _Transcription | None = None
    turn_detection: _TurnDetection | None = None


class _Audio(StrictModel):
    input: _Input | None = None


class _Session(StrictModel):
    type: Literal["transcription"] = "transcription"
    audio: _Audio | None = None
    include: Annotated[list[str] | None, Field(max_length=0)] = None


@dataclass(frozen=True, slots=True)
class RealtimeSettings:
    """How a session transcribes.

    Attributes
    ----------
    sample_rate : of the client's 16-bit samples, in Hz.
    model : what the client calls the target.
    endpointing : when utterances begin and end; ``None`` where the client says so itself.
    """

    sample_rate: int = SAMPLE_RATE
    model: str = WHISPER_1
    language: str | None = None
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    endpointing: EndpointingOptions | None = EndpointingOptions()  # noqa: RUF009 (it is frozen)

    def options(self) -> DecodingOptions:
        """Say it in our own terms."""
        return replace(
            LIVE_DECODING,
            language=self.language,
            initial_prompt=self.prompt,
            hotwords=", ".join(self.keywords),
        )

    def updated(self, session: Mapping[str, Any]) -> RealtimeSettings:
        """Change what a client names and keep all else; what cannot be honoured is refused."""
        try:
            told = _Session.model_validate(session)
        except ValidationError as error:
            raise _refused(error) from None
        heard = told.audio.input if told.audio else None
        if heard is None:
            return self
        settings = self
        if heard.format is not None:
            settings = replace(settings, sample_rate=heard.format.rate)
        if heard.transcription is not None:
            settings = settings._transcribing(heard.transcription)
        if "turn_detection" in heard.model_fields_set:
            settings = replace(settings, endpointing=_endpointing(settings, heard.turn_detection))
        return settings

    def describe(self) -> dict[str, Any]:
        """Give the session object."""
        transcription: dict[str, Any] = {
            "model": self.model,
            "language": self.language,
            "prompt": self.prompt,
        }
        if self.keywords:
            transcription |= {"keywords": list(self.keywords)}
        return {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": self.sample_rate},
                    "noise_reduction": None,
                    "transcription": transcription,
                    "turn_detection": self._turn_detection(),
                }
            },
            "include": [],
        }

    def describe_flat(self) -> dict[str, Any]:
        """Give the session object as it was in the beta of OpenAI's API."""
        heard = self.describe()["audio"]["input"]
        return {
            "input_audio_format": "pcm16",
            "input_audio_transcription": heard["transcription"],
            "input_audio_noise_reduction": None,
            "turn_detection": heard["turn_detection"],
            "include": [],
        }

    def _transcribing(self, told: _Transcription) -> RealtimeSettings:
        named = {name: getattr(told, name) for name in told.model_fields_set - {"languages", "delay"}}
        if told.languages is not None:
            if told.language or len(told.languages) > 1:
                raise _unsupported("audio.input.transcription.languages", "name one language, or none")
            named["language"] = next(iter(told.languages), None)
        if named.get("language"):
            named["language"] = named["language"].partition("-")[0].lower()  # of what part of the world it is
        defaults = {"model": WHISPER_1, "prompt": ""}
        named = {name: value or defaults.get(name) for name, value in named.items()}
        return replace(self, **named | {"keywords": tuple(told.keywords or self.keywords)})

    def _turn_detection(self) -> dict[str, Any] | None:
        if self.endpointing is None:
            return None
        return {
            "type": "server_vad",
            "threshold": self.endpointing.threshold,
            "prefix_padding_ms": self.endpointing.prefix_padding_ms,
            "silence_duration_ms": self.endpointing.silence_duration_ms,
        }


def nested(session: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the flat session object of the beta into today's shape."""
    names = {
        "input_audio_transcription": "transcription",
        "input_audio_noise_reduction": "noise_reduction",
        "turn_detection": "turn_detection",
    }
    heard = {names[name]: value for name, value in session.items() if name in names}
    if (given := session.get("input_audio_format")) is not None:
        if given != "pcm16":
            raise _unsupported("input_audio_format", "only pcm16 is understood")
        heard["format"] = {"type": "audio/pcm", "rate": SAMPLE_RATE}
    others = {name: value for name, value in session.items() if name not in {*names, "input_audio_format"}}
    return {"audio": {"input": heard}} | others


def _endpointing(settings: RealtimeSettings, told: _TurnDetection | None) -> EndpointingOptions | None:
    if told is None:
        return None
    before = settings.endpointing or EndpointingOptions()
    named = told.model_dump(
        include={"threshold", "prefix_padding_ms", "silence_duration_ms"}, exclude_none=True
    )
    silence_ms = named.get("silence_duration_ms", before.silence_duration_ms)
    pause_ms = min(EndpointingOptions().pause_ms, silence_ms)
    return replace(before, **named | {"pause_ms": pause_ms})


def _unsupported(name: str, reason: str) -> InvalidEvent:
    return InvalidEvent(f"{name} cannot be honoured: {reason}.", f"session.{name}", "unsupported_value")


def _refused(error: ValidationError) -> InvalidEvent:
    """Tell the first thing that is wrong, in one sentence."""
    problem = first_problem(error)
    name = problem.name
    if problem.kind == UNKNOWN:
        return InvalidEvent(
            f"Unknown parameter: 'session.{name}'; what has no effect here is refused, not ignored.",
            f"session.{name}",
            UNKNOWN,
        )
    reasons = {
        "include": NO_LOGPROBS,
        "create_response": NOBODY_ANSWERS,
        "interrupt_response": NOBODY_ANSWERS,
        "idle_timeout_ms": NOBODY_ANSWERS,
        "noise_reduction": "audio is heard as it is",
        "delay": "text is told as soon as it is final",
        "rate": "samples are taken at 24000 Hz, or at 16000",
        "type": problem.reason,
    }
    for part in reversed(problem.path):
        if part in reasons:
            return _unsupported(name, reasons[part])
    shown = f"{str(problem.value)[:SHOWN_CHARS]!r}"
    return InvalidEvent(f"session.{name} is {shown}: {problem.reason}.", f"session.{name}")
