"""Settings of a realtime session, from OpenAI's session object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.decode import G711, decode_g711
from specwhisper.live import EndpointingOptions
from specwhisper.options import DecodingOptions, options_from
from specwhisper.validated import choice, switch, text
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.option_fields import UNKNOWN, values_of, with_options, within

PCM_RATE = 24_000  # OpenAI's pcm16, in Hz
G711_RATE = 8_000
LAWS = {"audio/pcmu": G711.MULAW, "audio/pcma": G711.ALAW}
# The beta's names, which has all members of today's audio.input in the session itself.
BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
BETA_MEMBERS = {
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}
NO_RESPONSES = "a transcription session has no responses"
WITHOUT_EFFECT = {
    "include": "draft servers do not send log-probabilities of tokens",
    "create_response": NO_RESPONSES,
    "interrupt_response": NO_RESPONSES,
    "idle_timeout_ms": NO_RESPONSES,
    "noise_reduction": "audio is transcribed without noise reduction",
    "delay": "text is sent as soon as it is final",
}
VAD_FIELDS = (
    *("threshold", "prefix_padding_ms", "silence_duration_ms"),
    *("short_silence_ms", "min_utterance_ms", "max_piece_ms"),  # not OpenAI's
)
LANGUAGE = "session.audio.input.transcription.language"
# Silence that ends an utterance and a short one, in milliseconds.
EAGERNESS = {"low": (800, 2_000), "medium": (300, 800), "high": (200, 400)}
DEFAULT_EAGERNESS = "medium"  # OpenAI's "auto" too


# The classes of a session object's parts. A key that is not sent changes nothing.


@dataclass
class _Format:
    type: str = choice("audio/pcm", choices=("audio/pcm", *LAWS))
    rate: int | None = choice(None, choices=(24_000, 16_000, 8_000))


@dataclass(frozen=True)
@with_options(DecodingOptions, "languages", "hint", "padding", prompt="initial_prompt")
class _Transcription:
    languages: tuple[str, ...] = ()  # for type checkers, as the next: its option replaces it
    prompt: str = ""
    model: str = text()
    keywords: tuple[str, ...] = text((), repeats=True)
    interim_results: bool = switch()  # not OpenAI's


@dataclass(frozen=True)
@with_options(DecodingOptions, "language")
class _TranscriptionChange(_Transcription):
    pass


@dataclass
@with_options(EndpointingOptions, *VAD_FIELDS, defaults=dict.fromkeys(VAD_FIELDS))
class _TurnDetection:
    type: str = choice("server_vad", choices=("server_vad", "semantic_vad"))
    eagerness: str | None = choice(None, choices=(*EAGERNESS, "auto"))


@dataclass
class _Input:
    format: Any = within(_Format)
    transcription: Any = within(_TranscriptionChange)
    turn_detection: Any = within(_TurnDetection)


@dataclass
class _Audio:
    input: Any = within(_Input)


@dataclass
class _Session:
    type: str = choice("transcription", choices=("transcription",))
    audio: Any = within(_Audio)


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A format of raw samples in one channel, by OpenAI's name; ``rate`` in Hz."""

    name: str = "audio/pcm"
    rate: int = PCM_RATE

    def decode(self, audio: bytes) -> tuple[bytes, bytes]:
        """Return whole samples as PCM, and the start of another one."""
        if self.name in LAWS:
            return decode_g711(audio, LAWS[self.name]), b""
        end = len(audio) - len(audio) % BYTES_PER_SAMPLE
        return audio[:end], audio[end:]


@dataclass(frozen=True)
class RealtimeSettings(_Transcription):
    """Settings of a session.

    Attributes
    ----------
    model : a served name of the target; empty for the first one, until it is known.
    interim_results : whether to send text that may still change, too.
    audio_format : format of the client's audio.
    endpointing : finds where utterances begin and end; ``None`` if the client commits.
    eagerness : a key of ``EAGERNESS`` for ``semantic_vad``; ``None`` for ``server_vad``.
    """

    audio_format: AudioFormat = AudioFormat()
    endpointing: EndpointingOptions | None = EndpointingOptions()
    eagerness: str | None = None

    def options(self) -> DecodingOptions:
        names = {each.name for each in fields(_Transcription)} - {"model", "interim_results"}
        return options_from({}, {name: getattr(self, name) for name in names})

    def updated(
        self, session: Mapping[str, Any], ignored: list[InvalidField] | None = None
    ) -> RealtimeSettings:
        """Return the settings with a client's changes.

        Raises ``InvalidRequest`` if one is not supported; if one has no effect, only without ``ignored``.

        Parameters
        ----------
        ignored : takes an error for each key that is unknown or has no effect.
        """

        def ignore(name: str, key: str, value: Any) -> None:
            reason = WITHOUT_EFFECT.get(key)
            if reason is not None and value in (None, False, []):  # what a session has without it
                return
            sentence = f"{name} is not known." if reason is None else f"{name} has no effect: {reason}."
            error = InvalidField(sentence, name, UNKNOWN if reason is None else "unsupported_value")
            if ignored is None:
                raise error
            ignored.append(error)

        audio = values_of(_Session, session, "session.", ignore).get("audio") or {}
        changed = audio.get("input") or {}
        settings = self
        if (audio_format := changed.get("format")) is not None:
            settings = replace(settings, audio_format=_audio_format(**audio_format))
        if (transcription := changed.get("transcription")) is not None:
            settings = settings._with_transcription(transcription)
        if "turn_detection" in changed:
            settings = settings._with_turn_detection(changed["turn_detection"])
        return settings

    def describe(self) -> dict[str, Any]:
        transcription: dict[str, Any] = {
            "model": self.model,
            "language": self.languages[0] if len(self.languages) == 1 else None,
            "prompt": self.prompt,
        }
        if len(self.languages) > 1:
            transcription |= {"languages": list(self.languages)}
        for each in fields(_Transcription):
            value = getattr(self, each.name)
            if each.name not in ("languages", *transcription) and value != each.default:
                transcription[each.name] = list(value) if isinstance(value, tuple) else value
        audio_format: dict[str, Any] = {"type": self.audio_format.name}
        if self.audio_format.name not in LAWS:
            audio_format["rate"] = self.audio_format.rate
        return {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": audio_format,
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
        names = {today: beta for beta, today in BETA_FORMATS.items()}
        members = {beta: described[today] for beta, today in BETA_MEMBERS.items()}
        return {"input_audio_format": names[self.audio_format.name]} | members | {"include": []}

    def _with_transcription(self, changes: dict[str, Any]) -> RealtimeSettings:
        language, languages = changes.pop("language", ()), changes.get("languages")
        if language and languages:
            sentence = f"{LANGUAGE} and {LANGUAGE}s exclude each other: leave one out."
            raise InvalidField(sentence, f"{LANGUAGE}s", "unsupported_value")
        if language != ():
            changes["languages"] = languages or tuple(filter(None, (language,)))
        return replace(self, **changes)

    def _with_turn_detection(self, changes: dict[str, Any] | None) -> RealtimeSettings:
        if changes is None:
            return replace(self, endpointing=None, eagerness=None)
        eagerness = changes.pop("eagerness", None)
        if changes.pop("type", "server_vad") == "server_vad":
            if eagerness is not None:
                raise _unsupported("audio.input.turn_detection.eagerness", "it belongs to semantic_vad")
            if "silence_duration_ms" in changes:  # OpenAI's is that of every utterance, however short
                changes = {"short_silence_ms": changes["silence_duration_ms"]} | changes
            before = (self.endpointing if self.eagerness is None else None) or EndpointingOptions()
            return replace(self, endpointing=replace(before, **_not_none(changes)), eagerness=None)
        for name in sorted(changes):
            raise _unsupported(f"audio.input.turn_detection.{name}", "it belongs to server_vad")
        eagerness = eagerness or self.eagerness or DEFAULT_EAGERNESS
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


def nested(session: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a session object of the beta into today's format."""
    others = dict(session)
    changes = {today: others.pop(beta) for beta, today in BETA_MEMBERS.items() if beta in others}
    if (audio_format := others.pop("input_audio_format", None)) is not None:
        if not isinstance(audio_format, str) or audio_format not in BETA_FORMATS:
            raise _unsupported("input_audio_format", f"choose from {', '.join(BETA_FORMATS)}")
        changes["format"] = {"type": BETA_FORMATS[audio_format]}
    return {"audio": {"input": changes}} | others


def _audio_format(type: str = "audio/pcm", rate: int | None = None) -> AudioFormat:
    default = G711_RATE if type in LAWS else PCM_RATE
    rate = rate or default
    if rate != G711_RATE and type in LAWS:
        raise _unsupported("audio.input.format.rate", "the sample rate of G.711 is 8000 Hz")
    return AudioFormat(type, rate)


def _not_none(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


def _unsupported(name: str, reason: str) -> InvalidField:
    return InvalidField(f"{name} is not supported: {reason}.", f"session.{name}", "unsupported_value")
