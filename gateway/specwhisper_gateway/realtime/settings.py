"""Settings of a realtime session, from OpenAI's session object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, create_model

from specwhisper.languages import language_code
from specwhisper.live import EndpointingOptions
from specwhisper.options import DecodingOptions, Padding, options_from
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.option_fields import option_fields
from specwhisper_gateway.realtime.formats import BETA_NAMES, G711_RATE, PCM_RATE, AudioFormat, FormatName
from specwhisper_gateway.transport.messages import SHOWN_CHARS, UNKNOWN, StrictModel, first_problem

NO_RESPONSES = "a transcription session has no responses"
WITHOUT_EFFECT = {
    "include": "draft servers do not send log-probabilities of tokens",
    "create_response": NO_RESPONSES,
    "interrupt_response": NO_RESPONSES,
    "idle_timeout_ms": NO_RESPONSES,
    "noise_reduction": "audio is transcribed without noise reduction",
    "delay": "text is sent as soon as it is final",
}
VAD_FIELDS = option_fields(
    EndpointingOptions,
    *("threshold", "prefix_padding_ms", "silence_duration_ms"),
    *("short_silence_ms", "min_utterance_ms", "max_piece_ms"),  # not OpenAI's
    is_partial=True,
)
LANGUAGE = "session.audio.input.transcription.language"
# Silence that ends an utterance and a short one, in milliseconds.
EAGERNESS = {"low": (800, 2_000), "medium": (300, 800), "high": (200, 400)}
DEFAULT_EAGERNESS = "medium"  # OpenAI's "auto" too

_Words = Annotated[list[str], Field(fail_fast=True)]


class _Format(StrictModel):
    type: FormatName = "audio/pcm"
    rate: Literal[24_000, 16_000, 8_000] | None = None

    def audio_format(self) -> AudioFormat:
        default = PCM_RATE if self.type == "audio/pcm" else G711_RATE
        rate = default if self.rate is None else self.rate
        if rate != G711_RATE and self.type != "audio/pcm":
            raise _unsupported("audio.input.format.rate", "the sample rate of G.711 is 8000 Hz")
        return AudioFormat(self.type, rate)


class _Transcription(StrictModel):
    model: str | None = None
    language: str | None = None
    languages: _Words | None = None
    prompt: str | None = None
    keywords: _Words | None = None
    # Not OpenAI's.
    hint: str | None = None
    padding: Padding | None = None
    interim_results: bool | None = None


if TYPE_CHECKING:
    VadFields = StrictModel
else:
    VadFields = create_model("VadFields", __base__=StrictModel, **VAD_FIELDS)


class _TurnDetection(VadFields):
    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    eagerness: Literal["low", "medium", "high", "auto"] | None = None


class _Input(StrictModel):
    format: _Format | None = None
    transcription: _Transcription | None = None
    turn_detection: _TurnDetection | None = None


class _Audio(StrictModel):
    input: _Input | None = None


class _Session(StrictModel):
    type: Literal["transcription"] = "transcription"
    audio: _Audio | None = None


@dataclass(frozen=True, slots=True)
class RealtimeSettings:
    """Settings of a session.

    Attributes
    ----------
    audio_format : format of the client's audio.
    model : a served name of the target; empty for the first one, until it is known.
    padding : content of windows after the end of the audio.
    interim_results : whether to send text that may still change, too.
    endpointing : finds where utterances begin and end; ``None`` if the client commits.
    eagerness : a key of ``EAGERNESS`` for ``semantic_vad``; ``None`` for ``server_vad``.
    """

    audio_format: AudioFormat = AudioFormat()
    model: str = ""
    languages: tuple[str, ...] = ()
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    hint: str = ""
    padding: Padding = DecodingOptions().padding
    interim_results: bool = False
    endpointing: EndpointingOptions | None = EndpointingOptions()
    eagerness: str | None = None

    def options(self) -> DecodingOptions:
        names = ("languages", "prompt", "keywords", "hint", "padding")
        return options_from({}, {name: getattr(self, name) for name in names})

    def updated(self, session: Mapping[str, Any]) -> RealtimeSettings:
        """Return the settings with a client's changes.

        Raises :class:`InvalidField` if one is not supported, or has no effect.
        """
        known, ignored = known_part(session)
        for each in ignored:
            raise each
        try:
            changes = _Session.model_validate(known)
        except ValidationError as error:
            raise first_problem(error, "session") from None
        changed = changes.audio.input if changes.audio else None
        if changed is None:
            return self
        settings = self
        if changed.format is not None:
            settings = replace(settings, audio_format=changed.format.audio_format())
        if changed.transcription is not None:
            settings = settings._with_transcription(changed.transcription)
        if "turn_detection" in changed.model_fields_set:
            settings = settings._with_turn_detection(changed.turn_detection)
        return settings

    def with_model(self, name: str) -> RealtimeSettings:
        return replace(self, model=name)

    def describe(self) -> dict[str, Any]:
        transcription: dict[str, Any] = {
            "model": self.model,
            "language": self.languages[0] if len(self.languages) == 1 else None,
            "prompt": self.prompt,
        }
        if len(self.languages) > 1:
            transcription |= {"languages": list(self.languages)}
        for name in ("keywords", "hint", "padding", "interim_results"):
            if (value := getattr(self, name)) != _DEFAULTS[name]:
                transcription[name] = list(value) if isinstance(value, tuple) else value
        return {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": self.audio_format.describe(),
                    "noise_reduction": None,
                    "transcription": transcription,
                    "turn_detection": self._turn_detection(),
                }
            },
            "include": [],
        }

    def describe_flat(self) -> dict[str, Any]:
        """Return the session object in the format of OpenAI's beta."""
        described = self.describe()["audio"]["input"]
        return {
            "input_audio_format": self.audio_format.beta_name,
            "input_audio_transcription": described["transcription"],
            "input_audio_noise_reduction": None,
            "turn_detection": described["turn_detection"],
            "include": [],
        }

    def _with_transcription(self, changes: _Transcription) -> RealtimeSettings:
        named = {name: getattr(changes, name) for name in changes.model_fields_set}
        if changes.language and changes.languages:
            sentence = f"{LANGUAGE} and {LANGUAGE}s exclude each other: leave one out."
            raise InvalidField(sentence, f"{LANGUAGE}s", "unsupported_value")
        if named.keys() & {"language", "languages"}:
            asked = changes.languages or [named.pop("language", None)]
            named["languages"] = tuple(filter(None, map(language_code, asked)))
        named["keywords"] = tuple(self.keywords if changes.keywords is None else changes.keywords)
        return replace(self, **{name: value or _DEFAULTS[name] for name, value in named.items()})

    def _with_turn_detection(self, changes: _TurnDetection | None) -> RealtimeSettings:
        if changes is None:
            return replace(self, endpointing=None, eagerness=None)
        if changes.type == "server_vad":
            if changes.eagerness is not None:
                raise _unsupported("audio.input.turn_detection.eagerness", "it belongs to semantic_vad")
            return replace(self, endpointing=_endpointing(self, changes), eagerness=None)
        for name in sorted(changes.model_fields_set.intersection(VAD_FIELDS)):
            raise _unsupported(f"audio.input.turn_detection.{name}", "it belongs to server_vad")
        eagerness = changes.eagerness or self.eagerness or DEFAULT_EAGERNESS
        eagerness = DEFAULT_EAGERNESS if eagerness == "auto" else eagerness
        silence_ms, short_ms = EAGERNESS[eagerness]
        endpointing = EndpointingOptions(silence_duration_ms=silence_ms, short_silence_ms=short_ms)
        return replace(self, endpointing=endpointing, eagerness=eagerness)

    def _turn_detection(self) -> dict[str, Any] | None:
        if self.endpointing is None:
            return None
        if self.eagerness is not None:
            return {"type": "semantic_vad", "eagerness": self.eagerness}
        return {"type": "server_vad"} | {name: getattr(self.endpointing, name) for name in VAD_FIELDS}


_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(RealtimeSettings)}


def nested(session: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a session object of the beta into today's format."""
    names = {
        "input_audio_transcription": "transcription",
        "input_audio_noise_reduction": "noise_reduction",
        "turn_detection": "turn_detection",
    }
    changes = {names[name]: value for name, value in session.items() if name in names}
    if (audio_format := session.get("input_audio_format")) is not None:
        if not isinstance(audio_format, str) or audio_format not in BETA_NAMES:
            raise _unsupported("input_audio_format", f"choose from {', '.join(BETA_NAMES)}")
        changes["format"] = {"type": BETA_NAMES[audio_format]}
    others = {name: value for name, value in session.items() if name not in {*names, "input_audio_format"}}
    return {"audio": {"input": changes}} | others


def known_part(
    session: Mapping[str, Any], model: type[StrictModel] = _Session, path: str = "session"
) -> tuple[dict[str, Any], list[InvalidField]]:
    """Return a session without what has no effect, and an error about each such key."""
    known: dict[str, Any] = {}
    ignored: list[InvalidField] = []
    for key, value in session.items():
        name = f"{path}.{key[:SHOWN_CHARS]}"
        if key in model.model_fields:
            types = get_args(model.model_fields[key].annotation)
            inner = next((each for each in types if isinstance(each, type(StrictModel))), None)
            if inner is not None and isinstance(value, dict):
                value, more = known_part(value, inner, name)
                ignored += more
            known[key] = value
        elif (reason := WITHOUT_EFFECT.get(key)) is None:
            ignored.append(InvalidField(f"{name} is not known.", name, UNKNOWN))
        elif value not in (None, False, []):  # what a session has without it
            ignored.append(InvalidField(f"{name} has no effect: {reason}.", name, "unsupported_value"))
    return known, ignored


def _endpointing(settings: RealtimeSettings, changes: _TurnDetection) -> EndpointingOptions:
    before = settings.endpointing
    if before is None or settings.eagerness is not None:
        before = EndpointingOptions()
    named = changes.model_dump(include=set(VAD_FIELDS), exclude_none=True)
    if "silence_duration_ms" in named:  # OpenAI's is that of every utterance, however short
        named = {"short_silence_ms": named["silence_duration_ms"]} | named
    return replace(before, **named)


def _unsupported(name: str, reason: str) -> InvalidField:
    return InvalidField(f"{name} is not supported: {reason}.", f"session.{name}", "unsupported_value")
