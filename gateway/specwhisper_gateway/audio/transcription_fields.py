"""What transcriptions take beyond translations, and which of it cannot be honoured."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from specwhisper.options import DecodingOptions, Task
from specwhisper_gateway.audio.fields import AudioFields
from specwhisper_gateway.errors import InvalidField

NO_SPEAKERS = "speakers are not told apart here; leave it out."
STREAMED = ("json", "text")


class TranscriptionFields(AudioFields):
    """What /v1/audio/transcriptions takes beside the file."""

    task: ClassVar[Task] = Task.TRANSCRIBE

    language: Annotated[
        str | None, Field(description="Code of the language, such as `en`; else it is detected.")
    ] = None
    response_format: Annotated[
        Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"],
        Field(description="How the transcript is written; `diarized_json` is refused."),
    ] = "json"
    timestamp_granularities: Annotated[
        list[Literal["word", "segment"]],
        Field(
            default_factory=list,
            description="What has times in `verbose_json`; words take one more pass per window.",
        ),
    ]
    stream: Annotated[
        bool,
        Field(
            description="Answer with events: `transcript.text.delta` whenever segments are final, then "
            "`transcript.text.done`. Nothing is ever retracted. For `json` and `text`."
        ),
    ] = False
    include: Annotated[
        list[Literal["logprobs"]],
        Field(default_factory=list, description="`logprobs` is refused: `verbose_json` has them by segment."),
    ]
    chunking_strategy: Annotated[
        str | dict[str, str] | None,
        Field(
            description="`auto`, or an object of type `server_vad`; changes nothing, because a recording is "
            "cut where the target's own timestamps say. The object's other members are refused."
        ),
    ] = None
    keywords: Annotated[
        list[str], Field(default_factory=list, description="As `hotwords`, one by one; of both, give one.")
    ]
    languages: Annotated[
        list[str], Field(default_factory=list, description="One is taken as `language`; several are refused.")
    ]
    known_speaker_names: Annotated[list[str], Field(default_factory=list, description="Refused.")]
    known_speaker_references: Annotated[list[str], Field(default_factory=list, description="Refused.")]

    @property
    def has_segments(self) -> bool:
        """Whether ``verbose_json`` lists segments, as it does unless only words are wanted."""
        return not self.timestamp_granularities or "segment" in self.timestamp_granularities

    @property
    def has_words(self) -> bool:
        """Whether it lists words."""
        return "word" in self.timestamp_granularities

    def options(self) -> DecodingOptions:
        """Say it in our own terms."""
        return replace(
            super().options(),
            language=self.language or next(iter(self.languages), None) or None,
            word_timestamps=self.has_words,
            hotwords=self.hotwords or ", ".join(self.keywords),
        )

    def _check(self) -> None:
        strategy = self.chunking_strategy
        kind = strategy.get("type") if isinstance(strategy, dict) else strategy
        tuned = strategy.keys() - {"type"} if isinstance(strategy, dict) else set()
        refusals = (
            (self.response_format == "diarized_json", "response_format", NO_SPEAKERS),
            (bool(self.known_speaker_names), "known_speaker_names", NO_SPEAKERS),
            (bool(self.known_speaker_references), "known_speaker_references", NO_SPEAKERS),
            (
                bool(self.include),
                "include",
                "a draft server does not tell each token's log-probability; verbose_json has avg_logprob by "
                "segment.",
            ),
            (
                self.stream and self.response_format not in STREAMED,
                "response_format",
                "a stream has no such format: choose json or text, or leave out stream.",
            ),
            (
                bool(self.timestamp_granularities) and self.response_format != "verbose_json",
                "timestamp_granularities",
                "only verbose_json has times; set response_format to it.",
            ),
            (
                kind not in (None, "", "auto") and not (isinstance(strategy, dict) and kind == "server_vad"),
                "chunking_strategy",
                "it is 'auto' or an object of type server_vad.",
            ),
            (
                bool(tuned),
                "chunking_strategy",
                f"there is no voice detection to set {', '.join(sorted(tuned))} of; give the type alone.",
            ),
            (
                bool(self.keywords) and bool(self.hotwords),
                "keywords",
                "hotwords are given too: choose one of them.",
            ),
            (
                len(self.languages) > 1,
                "languages",
                "the target chooses among all it knows, or takes one: name one, or none.",
            ),
            (
                bool(self.languages) and bool(self.language),
                "languages",
                "language is given too: choose one of them.",
            ),
        )
        for is_wrong, name, reason in refusals:
            if is_wrong:
                raise InvalidField(f"{name} cannot be honoured: {reason}", name, "unsupported_value")
