"""Convert transcripts to messages of ``transcription.proto``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from google.protobuf.duration_pb2 import Duration

from specwhisper.languages import language_name
from specwhisper.types import NS_PER_S, SAMPLE_RATE, Segment, VoiceEvent, VoiceMark
from specwhisper.wire.stability import SETTLED, STABLE, TENTATIVE, VERIFIED, is_verified
from specwhisper.wire.v1 import transcription_pb2 as pb


class Interim(Protocol):
    """The text of a transcript that is not final yet."""

    @property
    def language(self) -> str:
        """Language code of the speech."""

    @property
    def language_probs(self) -> Mapping[str, float]:
        """Probabilities by language code, where it was detected."""

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the text, in seconds."""

    @property
    def settled_text(self) -> str:
        """Start of the verified text that only grows."""

    @property
    def verified_text(self) -> str:
        """Text of the target."""

    @property
    def stable_text(self) -> str:
        """Text of the draft, after the target's, that its last four hypotheses have."""

    @property
    def tentative_text(self) -> str:
        """The rest of the draft's text."""

    @property
    def is_unverified(self) -> bool:
        """Whether the draft's text was written without a target."""


def final_result(segment: Segment, language: str) -> pb.SpeechRecognitionResult:
    """Return the result of a final segment."""
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


def interim_results(interim: Interim) -> list[pb.SpeechRecognitionResult]:
    """Return the results of text that is not final, the most stable one first."""
    start, end = map(duration, interim.span_s)
    settled = interim.settled_text
    texts = (
        (settled, SETTLED),
        (interim.verified_text.removeprefix(settled), VERIFIED),
        (interim.stable_text, STABLE),
        (interim.tentative_text, TENTATIVE),
    )
    return [
        pb.SpeechRecognitionResult(
            alternatives=[pb.SpeechRecognitionAlternative(transcript=text)],
            stability=stability,
            start_offset=start,
            end_offset=end,
            language_code=interim.language,
            is_unverified=interim.is_unverified and not is_verified(stability),
        )
        for text, stability in texts
        if text
    ]


def spoken_language(interim: Interim) -> pb.SpokenLanguage:
    """Return the language of the speech."""
    return pb.SpokenLanguage(
        code=interim.language,
        name=language_name(interim.language),
        probabilities=interim.language_probs,
    )


def speech_event(
    mark: VoiceMark, interim: Iterable[pb.SpeechRecognitionResult]
) -> pb.StreamingRecognizeResponse:
    """Return the response that reports the begin or end of an utterance.

    It has all open text, ``interim``.
    """
    begins = mark.event is VoiceEvent.BEGIN
    return pb.StreamingRecognizeResponse(
        results=interim,
        speech_event=pb.SPEECH_EVENT_BEGIN if begins else pb.SPEECH_EVENT_END,
        speech_event_offset=duration(mark.sample / SAMPLE_RATE),
    )


def duration(seconds: float) -> Duration:
    """Return seconds as a duration, rounded to nanoseconds."""
    return Duration(seconds=round(seconds * NS_PER_S) // NS_PER_S, nanos=round(seconds * NS_PER_S) % NS_PER_S)
