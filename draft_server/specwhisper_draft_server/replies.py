"""What a session knows, as messages of ``transcription.proto``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from google.protobuf.duration_pb2 import Duration

from specwhisper.model.languages import language_name
from specwhisper.types import SAMPLE_RATE, Segment, VoiceEvent, VoiceMark
from specwhisper.wire.stability import DRAFT_STABILITY, VERIFIED_STABILITY
from specwhisper.wire.v1 import transcription_pb2 as pb

NS_PER_S = 1_000_000_000


class Written(Protocol):
    """What a session has written that is not final yet, whoever reads it."""

    @property
    def language(self) -> str:
        """Of the speech."""

    @property
    def language_probs(self) -> Mapping[str, float]:
        """By code, where it was detected."""

    @property
    def span_s(self) -> tuple[float, float]:
        """Where that begins and ends, in seconds."""

    @property
    def verified_text(self) -> str:
        """What the target has written."""

    @property
    def draft_text(self) -> str:
        """What the draft expects to follow."""

    @property
    def is_unverified(self) -> bool:
        """Whether that stands for lack of a target."""


def final_result(segment: Segment, language: str) -> pb.SpeechRecognitionResult:
    """Write a segment that will not change any more."""
    return pb.SpeechRecognitionResult(
        alternatives=[
            pb.SpeechRecognitionAlternative(
                transcript=segment.text,
                confidence=segment.confidence,
                words=[
                    pb.WordInfo(
                        start_offset=duration(word.start_s),
                        end_offset=duration(word.end_s),
                        word=word.text,
                        confidence=word.confidence,
                    )
                    for word in segment.words
                ],
                tokens=segment.tokens,
                avg_logprob=segment.avg_logprob,
                compression_ratio=segment.compression_ratio,
                temperature=segment.temperature,
                no_speech_prob=segment.no_speech_prob,
                seek=segment.seek,
            )
        ],
        is_final=True,
        stability=1.0,
        start_offset=duration(segment.start_s),
        end_offset=duration(segment.end_s),
        language_code=segment.language or language,
        utterance=segment.utterance,
        is_utterance_end=segment.is_utterance_end,
    )


def interim_results(written: Written) -> list[pb.SpeechRecognitionResult]:
    """Write what is not final yet: verified text, then the draft's."""
    start, end = map(duration, written.span_s)
    texts = ((written.verified_text, VERIFIED_STABILITY), (written.draft_text, DRAFT_STABILITY))
    return [
        pb.SpeechRecognitionResult(
            alternatives=[pb.SpeechRecognitionAlternative(transcript=text)],
            stability=stability,
            start_offset=start,
            end_offset=end,
            language_code=written.language,
            is_unverified=written.is_unverified and stability == DRAFT_STABILITY,
        )
        for text, stability in texts
        if text
    ]


def spoken_language(written: Written) -> pb.SpokenLanguage:
    """Write what is spoken."""
    return pb.SpokenLanguage(
        code=written.language,
        name=language_name(written.language),
        probabilities=written.language_probs,
    )


def speech_event(mark: VoiceMark) -> pb.StreamingRecognizeResponse:
    """Write that somebody begins or ends to speak."""
    begins = mark.event is VoiceEvent.BEGIN
    return pb.StreamingRecognizeResponse(
        speech_event=pb.SPEECH_EVENT_BEGIN if begins else pb.SPEECH_EVENT_END,
        speech_event_offset=duration(mark.sample / SAMPLE_RATE),
    )


def duration(seconds: float) -> Duration:
    """Write seconds to the nearest nanosecond."""
    return Duration(seconds=round(seconds * NS_PER_S) // NS_PER_S, nanos=round(seconds * NS_PER_S) % NS_PER_S)
