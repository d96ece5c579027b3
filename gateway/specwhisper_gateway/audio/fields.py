"""The fields of OpenAI's audio API, and the decoding options that they set."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from specwhisper.errors import InvalidRequest
from specwhisper.languages import language_codes
from specwhisper.options import OTHER_NAMES, DecodingOptions, Task, options_from
from specwhisper.selection import VadOptions
from specwhisper.validated import REQUIRED, choice, default_of, number, option, spelled, switch, text
from specwhisper_client.cli.arguments import Temperatures
from specwhisper_gateway.audio.uploads import FILE
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.option_fields import (
    NOT_OPENAIS,
    SHOWN_CHARS,
    is_list,
    parse_object,
    schema_of,
    values_of,
    with_options,
)

DEFAULTS = {"padding": "zero"}  # as in openai/whisper
NAMES = {declared.name for declared in fields(DecodingOptions)}
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
MAX_SPEAKERS = 4  # OpenAI's limit
SPEAKERS, REFERENCES = "known_speaker_names", "known_speaker_references"
VAD = "chunking_strategy"
STREAMED = ("json", "text", "diarized_json")
OPENAIS_NAMES = {
    "threshold": "threshold",
    "prefix_padding_ms": "speech_pad_ms",
    "silence_duration_ms": "min_silence_duration_ms",
}
OPENAIS_VAD = {"threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 200}


@dataclass(frozen=True, kw_only=True)
@with_options(Temperatures, "greedy", note=NOT_OPENAIS)
@with_options(
    DecodingOptions,
    *("hotwords", "hint", "vad_filter", "vad_parameters", "padding", "strict"),
    *("channel", "audio_track", "container_times"),
    note=NOT_OPENAIS,
    defaults=DEFAULTS,
)
class AudioFields:
    """Fields of transcriptions and translations, without the file."""

    task: ClassVar[Task]
    vad_filter: bool

    model: str = text(
        REQUIRED, "A name of /v1/models; others stand for the first one, unless names are strict."
    )
    prompt: str = text("", "Prompt of every window: names, spelling, style.")
    response_format: str = "json"
    temperature: float = number(
        0.0,
        0,
        1,
        "0 is greedy; a window that fails openai/whisper's thresholds is decoded again at 0.2, 0.4 ... 1. "
        "Any other value is the only one.",
    )

    @classmethod
    def read(cls, form: Iterable[tuple[str, str]]) -> Self:
        """Read a form's fields.

        Raises ``InvalidRequest`` for the first that is not supported.
        """
        try:
            return cls(**values_of(cls, _grouped(form, cls._lists())))
        except InvalidRequest as error:
            # A form has no fields within fields.
            error.param = str(error.param).partition(".")[0].removesuffix("[]")
            raise

    @classmethod
    def form_schema(cls) -> dict[str, Any]:
        """Return the form's JSON schema, for the API's page."""
        file = {
            "type": "string",
            "format": "binary",
            "description": "The recording, in any format that libsndfile or FFmpeg reads, including video.",
        }
        lists = cls._lists()
        openais_first = sorted(fields(cls), key=lambda each: each.name in NAMES)
        return {
            "type": "object",
            "required": [FILE, "model"],
            "properties": {FILE: file}
            | {each.name + "[]" * (each.name in lists): schema_of(cls, each) for each in openais_first},
        }

    def options(self) -> DecodingOptions:
        with spelled({"initial_prompt": "prompt", "temperatures": "temperature"}):
            return options_from(DEFAULTS, self.given())

    def given(self) -> dict[str, Any]:
        """Return the decoding options that a request sets, by the names that :func:`options_from` reads."""
        read = {*NAMES, *OTHER_NAMES, "greedy"}
        given = ((each, getattr(self, each.name)) for each in fields(self) if each.name in read)
        changed = {each.name: value for each, value in given if value != default_of(each)}
        return changed | {"task": self.task}

    @classmethod
    def _lists(cls) -> set[str]:
        return {each.name for each in fields(cls) if is_list(cls, each.name)}


@dataclass(frozen=True, kw_only=True)
class TranslationFields(AudioFields):
    """Fields of /v1/audio/translations, without the file."""

    task: ClassVar[Task] = Task.TRANSLATE

    response_format: str = choice("json", "Format of the translation.", choices=FORMATS)


@dataclass
@with_options(VadOptions, defaults=OPENAIS_VAD, **OPENAIS_NAMES)
class ServerVad:
    """OpenAI's object of type ``server_vad``; its padding is kept at either side."""

    type: str = choice(REQUIRED, choices=("server_vad",))


@dataclass(frozen=True, kw_only=True)
@with_options(DecodingOptions, "language")
@with_options(DecodingOptions, "multilingual", note=NOT_OPENAIS)
class TranscriptionFields(AudioFields):
    """Fields of /v1/audio/transcriptions, without the file."""

    task: ClassVar[Task] = Task.TRANSCRIBE

    response_format: str = choice(
        "json",
        "Format of the transcript; `diarized_json` needs a gateway with `--speaker-models`.",
        choices=(*FORMATS, "diarized_json"),
    )
    languages: tuple[str, ...] = option(
        (),
        "Languages that may be spoken, one in each field, by code or name: no other is detected.",
        read=language_codes,
    )
    timestamp_granularities: tuple[str, ...] = choice(
        (),
        "Parts of `verbose_json` with times; words take one more forward pass per window.",
        choices=("word", "segment"),
        repeats=True,
    )
    stream: bool = switch(
        False,
        "Answer with events: `transcript.text.delta` whenever the target has written a segment, then "
        "`transcript.text.done`. If a window is decoded again at another temperature, or skipped as "
        "silence, `transcript.text.retracted` takes its text back. For `json`, `text` and "
        "`diarized_json`, which has a `transcript.text.segment` for each speaker's part at the end.",
    )
    interim_results: bool = switch(
        False,
        "Not OpenAI's, with `stream`: events `transcript.text.interim` too, with text after the deltas "
        "that may still change: the target's (`verified`), then the draft's (`stable`, on which its last "
        "four hypotheses agree, and `tentative`).",
    )
    include: tuple[str, ...] = choice(
        (),
        "`logprobs` is refused: `verbose_json` has them by segment.",
        choices=("logprobs",),
        repeats=True,
    )
    chunking_strategy: Any = option(
        None,
        "`auto`: only speech is transcribed, as with `vad_filter`. An object of type `server_vad`, as JSON "
        "or in fields such as `chunking_strategy[type]`, may have `threshold`, `prefix_padding_ms` and "
        "`silence_duration_ms`.",
        read=parse_object,
    )
    keywords: tuple[str, ...] = text((), "Words before the prompt of every window, as a list.", repeats=True)
    known_speaker_names: tuple[str, ...] = text(
        (), "Names of speakers in `diarized_json`, at most 4.", repeats=True
    )
    known_speaker_references: tuple[str, ...] = text(
        (), "A recording of each one's voice, 2 to 10 s, as a data URL with base64.", repeats=True
    )

    @property
    def has_speakers(self) -> bool:
        return self.response_format == "diarized_json"

    @property
    def has_segments(self) -> bool:
        """Whether ``verbose_json`` lists segments: unless only words are requested."""
        return not self.timestamp_granularities or "segment" in self.timestamp_granularities

    @property
    def has_words(self) -> bool:
        """Whether ``verbose_json`` lists words."""
        return "word" in self.timestamp_granularities

    def given(self) -> dict[str, Any]:
        given = super().given() | {"word_timestamps": self.has_words or self.has_speakers}
        if self.chunking_strategy:
            given["vad_filter"] = True
        if isinstance(self.chunking_strategy, dict):
            given["vad_parameters"] = self._vad_parameters(self.chunking_strategy)
        return given

    def known_speakers(self) -> dict[str, bytes]:
        """Return the sample of each known speaker by name, as a file in memory."""
        names, references = self.known_speaker_names, self.known_speaker_references
        if len(names) != len(references):
            raise _invalid(
                SPEAKERS if len(names) > len(references) else REFERENCES,
                f"there are {len(names)} names and {len(references)} references; send a reference for each "
                "name.",
            )
        if len(names) > MAX_SPEAKERS:
            raise _invalid(SPEAKERS, f"there are {len(names)}; send at most {MAX_SPEAKERS}.")
        if len(set(names)) < len(names) or not all(map(str.strip, names)):
            raise _invalid(SPEAKERS, "each speaker needs a name of its own, which is not empty.")
        return {name: _file_in(reference, name) for name, reference in zip(names, references, strict=True)}

    @staticmethod
    def _vad_parameters(strategy: dict[str, Any]) -> VadOptions:
        asked = OPENAIS_VAD | values_of(ServerVad, strategy, "chunking_strategy.")
        return VadOptions(**{name: asked[openais] for openais, name in OPENAIS_NAMES.items()})

    def __post_init__(self) -> None:
        """Refuse values of OpenAI's API that have no effect here, and fields that contradict each other."""
        strategy = self.chunking_strategy
        for name in (SPEAKERS, REFERENCES):
            if getattr(self, name) and not self.has_speakers:
                raise _unsupported(name, "only diarized_json names speakers; set response_format to it.")
        if self.include:
            raise _unsupported(
                "include",
                "draft servers send no log-probabilities of tokens; verbose_json has avg_logprob by segment.",
            )
        if self.stream and self.response_format not in STREAMED:
            reason = "a stream has json, text and diarized_json: choose one of them, or leave out stream."
            raise _unsupported("response_format", reason)
        if self.interim_results and not self.stream:
            raise _unsupported("interim_results", "only a stream has text that may change; set stream too.")
        if self.timestamp_granularities and self.response_format != "verbose_json":
            reason = "only verbose_json has times; set response_format to it."
            raise _unsupported("timestamp_granularities", reason)
        if isinstance(strategy, str) and strategy not in ("", "auto"):
            shown = repr(strategy[:SHOWN_CHARS])
            raise _unsupported(VAD, f"{shown} is neither 'auto' nor an object of type server_vad.")
        if self.vad_filter and strategy:
            raise _unsupported("vad_filter", "chunking_strategy says the same: send one of them.")
        self.known_speakers()
        if isinstance(strategy, dict):
            try:
                self._vad_parameters(strategy)
            except InvalidRequest as error:
                raise InvalidField(str(error), VAD, "unsupported_value") from None


def _file_in(reference: str, name: str) -> bytes:
    head, _, data = reference.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise _invalid(REFERENCES, f"the one for {name!r} is not a data URL; send data:audio/wav;base64,....")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise _invalid(REFERENCES, f"the one for {name!r} is not base64.") from None


def _unsupported(name: str, reason: str) -> InvalidField:
    return _invalid(name, reason, "unsupported_value")


def _invalid(name: str, reason: str, code: str = "invalid_value") -> InvalidField:
    return InvalidField(f"{name} cannot be used: {reason}", name, code)


def _grouped(form: Iterable[tuple[str, str]], lists: set[str]) -> dict[str, Any]:
    """Group a form's parts: lists named ``list[]``, objects named ``object[member]``."""
    values: dict[str, Any] = {}
    for key, value in form:
        name, _, member = key.partition("[")
        member = member.removesuffix("]")
        if name in lists:
            values.setdefault(name, []).append(value)
        elif member:
            members = values.setdefault(name, {})
            if not isinstance(members, dict):
                raise InvalidField(f"{name} is sent both as a text and as an object.", name)
            members[member] = value
        elif name in values:
            raise InvalidField(f"{name} is sent more than once.", name)
        else:
            values[name] = value
    return values
