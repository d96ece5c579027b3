"""Fields that only transcriptions have, and values that are not supported."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, create_model, model_validator

from specwhisper.options import DecodingOptions, Task
from specwhisper.selection import MAX_MS, VadOptions
from specwhisper_gateway.audio.fields import AudioFields
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.option_fields import NOT_OPENAIS, option_fields, parse_object
from specwhisper_gateway.transport.messages import SHOWN_CHARS, StrictModel, first_problem

MAX_SPEAKERS = 4  # OpenAI's limit
NAMES, REFERENCES = "known_speaker_names", "known_speaker_references"
ONLY_DIARIZED = "only diarized_json names speakers; set response_format to it."
STREAMED = ("json", "text", "diarized_json")


class ServerVad(StrictModel):
    """OpenAI's object of type ``server_vad``, with its defaults."""

    type: Literal["server_vad"]
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    prefix_padding_ms: Annotated[int, Field(ge=0, le=MAX_MS)] = 300
    silence_duration_ms: Annotated[int, Field(ge=0, le=MAX_MS)] = 200

    def options(self) -> VadOptions:
        """Return the options of VAD; the padding is kept at either side."""
        return VadOptions(
            threshold=self.threshold,
            min_silence_duration_ms=self.silence_duration_ms,
            speech_pad_ms=self.prefix_padding_ms,
        )


if TYPE_CHECKING:
    LanguageFields = BaseModel
else:
    LanguageFields = create_model(
        "LanguageFields",
        **option_fields(DecodingOptions, "language"),
        **option_fields(DecodingOptions, "multilingual", note=NOT_OPENAIS),
    )


class TranscriptionFields(AudioFields, LanguageFields):
    """Fields of /v1/audio/transcriptions, without the file."""

    task: ClassVar[Task] = Task.TRANSCRIBE

    response_format: Annotated[
        Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"],
        Field(
            description="Format of the transcript; `diarized_json` needs a gateway with `--speaker-models`."
        ),
    ] = "json"
    languages: Annotated[
        list[str],
        Field(
            default_factory=list,
            description="Languages that may be spoken, one in each field, by code or name: no other is "
            "detected.",
        ),
    ]
    timestamp_granularities: Annotated[
        list[Literal["word", "segment"]],
        Field(
            default_factory=list,
            description="Parts of `verbose_json` with times; words take one more forward pass per window.",
        ),
    ]
    stream: Annotated[
        bool,
        Field(
            description="Answer with events: `transcript.text.delta` whenever the target has written a "
            "segment, then `transcript.text.done`. If a window is decoded again at another temperature, or "
            "skipped as silence, `transcript.text.retracted` takes its text back. For `json`, `text` and "
            "`diarized_json`, which has a `transcript.text.segment` for each speaker's part at the end."
        ),
    ] = False
    interim_results: Annotated[
        bool,
        Field(
            description="Not OpenAI's, with `stream`: events `transcript.text.interim` too, with text after "
            "the deltas that may still change: the target's (`verified`), then the draft's (`stable`, on "
            "which its last four hypotheses agree, and `tentative`)."
        ),
    ] = False
    include: Annotated[
        list[Literal["logprobs"]],
        Field(default_factory=list, description="`logprobs` is refused: `verbose_json` has them by segment."),
    ]
    chunking_strategy: Annotated[
        str | dict[str, Any] | None,
        BeforeValidator(parse_object),
        Field(
            description="`auto`: only speech is transcribed, as with `vad_filter`. An object of type "
            "`server_vad`, as JSON or in fields such as `chunking_strategy[type]`, may have `threshold`, "
            "`prefix_padding_ms` and `silence_duration_ms`."
        ),
    ] = None
    keywords: Annotated[
        list[str],
        Field(default_factory=list, description="Words before the prompt of every window, as a list."),
    ]
    known_speaker_names: Annotated[
        list[str],
        Field(default_factory=list, description="Names of speakers in `diarized_json`, at most 4."),
    ]
    known_speaker_references: Annotated[
        list[str],
        Field(
            default_factory=list,
            description="A recording of each one's voice, 2 to 10 s, as a data URL with base64.",
        ),
    ]

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
            given["vad_parameters"] = ServerVad.model_validate(self.chunking_strategy).options()
        return given

    def known_speakers(self) -> dict[str, bytes]:
        """Return the sample of each known speaker by name, as a file in memory."""
        names, references = self.known_speaker_names, self.known_speaker_references
        if len(names) != len(references):
            raise _invalid(
                NAMES if len(names) > len(references) else REFERENCES,
                f"there are {len(names)} names and {len(references)} references; send a reference for each "
                "name.",
            )
        if len(names) > MAX_SPEAKERS:
            raise _invalid(NAMES, f"there are {len(names)}; send at most {MAX_SPEAKERS}.")
        if len(set(names)) < len(names) or not all(map(str.strip, names)):
            raise _invalid(NAMES, "each speaker needs a name of its own, which is not empty.")
        return {name: _file_in(reference, name) for name, reference in zip(names, references, strict=True)}

    @model_validator(mode="after")
    def _refuse_unsupported(self) -> Self:
        """Refuse values of OpenAI's API that have no effect here, and fields that contradict each other."""
        strategy = self.chunking_strategy
        refusals = (
            (bool(self.known_speaker_names) and not self.has_speakers, NAMES, ONLY_DIARIZED),
            (bool(self.known_speaker_references) and not self.has_speakers, REFERENCES, ONLY_DIARIZED),
            (
                bool(self.include),
                "include",
                "draft servers do not send log-probabilities of tokens; verbose_json has avg_logprob by "
                "segment.",
            ),
            (
                self.stream and self.response_format not in STREAMED,
                "response_format",
                "a stream has json, text and diarized_json: choose one of them, or leave out stream.",
            ),
            (
                self.interim_results and not self.stream,
                "interim_results",
                "only a stream has text that may change; set stream too.",
            ),
            (
                bool(self.timestamp_granularities) and self.response_format != "verbose_json",
                "timestamp_granularities",
                "only verbose_json has times; set response_format to it.",
            ),
            (
                isinstance(strategy, str) and strategy not in ("", "auto"),
                "chunking_strategy",
                f"{str(strategy)[:SHOWN_CHARS]!r} is neither 'auto' nor an object of type server_vad.",
            ),
            (
                self.vad_filter and bool(strategy),
                "vad_filter",
                "chunking_strategy says the same: send one of them.",
            ),
        )
        for is_wrong, name, reason in refusals:
            if is_wrong:
                raise _invalid(name, reason, "unsupported_value")
        self.known_speakers()
        if isinstance(strategy, dict):
            try:
                ServerVad.model_validate(strategy)
            except ValidationError as error:
                problem = first_problem(error, "chunking_strategy")
                raise InvalidField(str(problem), "chunking_strategy", "unsupported_value") from None
        return self


def _file_in(reference: str, name: str) -> bytes:
    head, _, data = reference.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise _invalid(REFERENCES, f"the one for {name!r} is not a data URL; send data:audio/wav;base64,....")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise _invalid(REFERENCES, f"the one for {name!r} is not base64.") from None


def _invalid(name: str, reason: str, code: str = "invalid_value") -> InvalidField:
    return InvalidField(f"{name} cannot be used: {reason}", name, code)
