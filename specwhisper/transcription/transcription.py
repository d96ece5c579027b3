"""``Transcription``: the result of every entry point, and its formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any

from specwhisper.languages import language_name
from specwhisper.options import DecodingOptions
from specwhisper.printable import escaped_json
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription import formats
from specwhisper.transcription.formats import Layout
from specwhisper.transcription.speakers import Turn, with_speakers
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES, Keyed, Mode, Segment, Word

WINDOW_S = WINDOW_SAMPLES / SAMPLE_RATE
MAX_SHOWN_CHARACTERS = 60  # in a ``repr``
UNSURE_BELOW = 0.5  # probability of a word
NOT_IN_JSON = {"options", "segments", "window_tokens", "words"}  # segments are written with their words


@dataclass(frozen=True, slots=True)
class ModelInfo(Keyed):
    """The pair of models that writes the text.

    Attributes
    ----------
    target, draft : names; empty where unknown, and the draft's in target-only mode.
    gamma : draft tokens per block; 0 where the length is chosen while decoding.
    is_lossy : whether an ``acceptance_threshold`` applies, so that the text may differ from the target's.
    """

    target: str = ""
    draft: str = ""
    target_weights_digest: str = ""
    mode: Mode = Mode.TARGET_ONLY
    gamma: int = 0
    is_lossy: bool = False


@dataclass(frozen=True, slots=True)
class Transcription(Keyed):
    """A transcribed recording; it prints as its text.

    It and its parts are also mappings of their attributes, with openai/whisper's names besides ours; the
    segments of ``result["segments"]``, with their words, are dicts, as in openai/whisper's result.

    Attributes
    ----------
    segments : the pieces of the text, with their times.
    language, language_name : what is spoken, such as "de" and "german"; empty where nothing is. With
        ``multilingual``, those of the last window: each segment has its own.
    language_probs : probability by code, where the language was detected; the last time.
    duration_s : length of the recording.
    duration_after_vad_s : length of its speech, with ``vad_filter``.
    stats : how the draft did; ``None`` with ``return_stats=False``.
    model : the models that wrote the text.
    options : the decoding options of the request.
    elapsed_s : seconds from the request to the last text.
    window_tokens : tokens of each window, end-of-text included; empty where a server transcribed.
    warnings : what is missing of the recording, such as of a damaged file, or may be: one sentence each.
    """

    segments: tuple[Segment, ...] = ()
    language: str = "en"
    language_name: str = ""
    language_probs: Mapping[str, float] = field(default_factory=dict)
    duration_s: float = 0.0
    duration_after_vad_s: float | None = None
    stats: SpeculationStatistics | None = None
    model: ModelInfo = ModelInfo()
    options: DecodingOptions = field(default_factory=DecodingOptions)
    elapsed_s: float = field(default=0.0, compare=False)
    window_tokens: tuple[tuple[int, ...], ...] = ()
    warnings: tuple[str, ...] = ()
    _dicts: list[dict[str, Any]] = field(default_factory=list, init=False, compare=False)

    def __post_init__(self) -> None:
        numbered = (replace(each, id=number) for number, each in enumerate(self.segments))
        object.__setattr__(self, "segments", tuple(numbered))

    @classmethod
    def without_speech(cls, options: DecodingOptions, duration_s: float) -> Transcription:
        """Return the result of a recording in which ``vad_filter`` found no speech."""
        return cls(
            language=options.language or "",
            language_name=language_name(options.language) if options.language else "",
            duration_s=duration_s,
            duration_after_vad_s=0.0,
            stats=SpeculationStatistics(),
            options=options,
        )

    @property
    def text(self) -> str:
        """The whole text, without spaces at either end."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of all segments, with ``word_timestamps=True``."""
        return tuple(word for segment in self.segments for word in segment.words)

    @property
    def duration(self) -> float:
        """:attr:`duration_s` by another name."""
        return self.duration_s

    @property
    def duration_after_vad(self) -> float | None:
        """:attr:`duration_after_vad_s` by another name."""
        return self.duration_after_vad_s

    @property
    def language_probability(self) -> float:
        """Probability of the language; 1 where it was not detected."""
        return self.language_probs.get(self.language, 1.0)

    def segments_and_info(self) -> tuple[tuple[Segment, ...], Transcription]:
        """Return segments and the result, for faster-whisper's programs to unpack."""
        return self.segments, self

    def with_speakers(self, turns: Sequence[Turn]) -> Transcription:
        """Return the transcription with speakers, from the turns that a diarizer has found."""
        return replace(self, segments=with_speakers(self.segments, turns))

    @property
    def is_lossy(self) -> bool:
        """Whether an ``acceptance_threshold`` may have changed the target's text."""
        return self.model.is_lossy

    @property
    def real_time_factor(self) -> float:
        """Seconds waited per second of audio; 0 without audio."""
        return self.elapsed_s / self.duration_s if self.duration_s else 0.0

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        """Return one line: the beginning of the text and what it was made of."""
        text = self.text
        if len(text) > MAX_SHOWN_CHARACTERS:
            text = text[:MAX_SHOWN_CHARACTERS] + "…"
        return (
            f"Transcription({text!r}, language={self.language!r}, duration_s={self.duration_s:.1f}, "
            f"{len(self.segments)} segments)"
        )

    def __getitem__(self, key: str) -> Any:
        if key != "segments":
            return Keyed.__getitem__(self, key)
        if not self._dicts:  # kept: callers may change them
            self._dicts.extend(map(_segment, self.segments))
            if not (self.options.word_timestamps or self.words):
                for segment in self._dicts:
                    del segment["words"]
        return self._dicts

    def to_txt(self) -> str:
        """Return a line per segment."""
        return formats.to_txt(self.segments)

    def to_srt(self, layout: Layout | None = None) -> str:
        """Return SubRip subtitles; a layout needs word times."""
        return formats.to_srt(self.segments, layout)

    def to_vtt(self, layout: Layout | None = None) -> str:
        """Return WebVTT subtitles; a layout needs word times."""
        return formats.to_vtt(self.segments, layout)

    def to_tsv(self) -> str:
        """Return a table of start and end in milliseconds, and text."""
        return formats.to_tsv(self.segments)

    def unsure_words(self, below: float = UNSURE_BELOW) -> tuple[Word, ...]:
        """Return the words with a lower probability; with ``word_timestamps=True``."""
        words = formats.spoken_words(self.segments)
        return tuple(word for word in words if word.confidence < below)

    def to_unsure(self, below: float = UNSURE_BELOW) -> str:
        """Return a table of the words with a lower probability, to check them."""
        return formats.to_unsure(self.unsure_words(below))

    def to_json(self, audio: str | None = None) -> str:
        """Return everything as JSON.

        Parameters
        ----------
        audio : name of the recording, to write with it.
        """
        return _dumped(({} if audio is None else {"audio": audio}) | self.to_dict())

    def to_verbose_json(self) -> str:
        """Return JSON with the fields of OpenAI's ``verbose_json``; times in seconds."""
        return _dumped(
            formats.to_verbose_json(
                self.segments,
                language=self.language_name or self.language,
                duration_s=self.duration_s,
                task=self.options.task,
                word_timestamps=self.options.word_timestamps,
                multilingual=self.options.multilingual or bool(self.options.languages),
            )
        )

    def to_diarized_json(self) -> str:
        """Return OpenAI's ``diarized_json``, after :meth:`with_speakers`."""
        return _dumped(
            formats.to_diarized_json(self.segments, duration_s=self.duration_s, task=self.options.task)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, by the same keys."""
        figures = {} if self.stats is None else {**self.stats, **asdict(self.stats)}
        times = {"elapsed_s": self.elapsed_s, "real_time_factor": self.real_time_factor}
        others = {key: self[key] for key in self if key not in NOT_IN_JSON}
        return {
            "text": self.text,
            **{key: value for key, value in others.items() if value is not None},
            "language_probs": dict(self.language_probs),
            "segments": [_segment(segment) for segment in self.segments],
            "model": dict(self.model),
            "stats": figures | times,
        }


def _segment(segment: Segment) -> dict[str, Any]:
    words = [_spoken(word) for word in segment.words]
    return _spoken(segment) | {"tokens": list(segment.tokens), "words": words}


def _spoken(part: Segment | Word) -> dict[str, Any]:
    members = dict(part)
    del members["speaker"]
    return members | formats.speaker_member(part)


def _dumped(document: Mapping[str, Any]) -> str:
    return escaped_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"


def losses(options: DecodingOptions, duration_s: float) -> tuple[str, ...]:
    """Return a warning where a recording's text may lack words by its options."""
    num_parts = ceil(duration_s / WINDOW_S)
    if options.timestamps or num_parts < 2:
        return ()
    return (
        f"Without timestamps the recording is decoded in {num_parts} parts of {WINDOW_S:g} s, and the text "
        f"of a part may end before its speech does: up to {WINDOW_S:g} s of each may be missing. Leave "
        "timestamps on, and choose txt for text without times.",
    )
