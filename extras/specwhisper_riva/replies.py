"""Convert the responses of our service to Riva's messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from riva.client.proto import riva_asr_pb2

from specwhisper.transcription.speakers import SpeakersOfTurns, Turn, UtteranceSpeakers, number_of
from specwhisper.types import SAMPLE_RATE, Segment, Word
from specwhisper.wire import is_stable
from specwhisper.wire.v1 import transcription_pb2 as pb

MAX_FINAL_TOKENS = 300  # a longer utterance is sent in parts: interim results hold all of it
CHANNEL = 1  # Riva counts from 1; channels are mixed
# Riva's clients take a stability as how likely the whole text is to stay.
AGREED, WITH_STABLE_TEXT, WITH_TENTATIVE_TEXT = 0.9, 0.6, 0.1
MODEL_TYPES = {"online": "True", "offline": "False"}  # Riva's names for streaming models and others


def alternative(results: Sequence[pb.SpeechRecognitionResult]) -> riva_asr_pb2.SpeechRecognitionAlternative:
    """Join consecutive final results to one alternative."""
    pieces = [result.alternatives[0] for result in results]
    num_tokens = sum(len(piece.tokens) for piece in pieces)
    confidence = sum(piece.confidence * len(piece.tokens) for piece in pieces)
    return riva_asr_pb2.SpeechRecognitionAlternative(
        transcript=with_trailing_space("".join(piece.transcript for piece in pieces)),
        confidence=confidence / num_tokens if num_tokens else 0.0,
        words=[
            riva_asr_pb2.WordInfo(
                start_time=milliseconds(word.start_offset),
                end_time=milliseconds(word.end_offset),
                word=word.word.strip(),
                confidence=word.confidence,
            )
            for piece in pieces
            for word in piece.words
            if word.word.strip()
        ],
        language_code=sorted({result.language_code for result in results if result.language_code}),
    )


def with_trailing_space(text: str) -> str:
    """Move the space at the start of a text, where Whisper writes it, to its end, as in Riva."""
    return f"{text.strip()} " if text.startswith(" ") and text.strip() else text.strip()


def recognize_response(response: pb.RecognizeResponse) -> riva_asr_pb2.RecognizeResponse:
    """Return a whole transcript as one result; none for a recording without speech."""
    whole = alternative(response.results)
    if not whole.transcript:
        return riva_asr_pb2.RecognizeResponse()
    result = riva_asr_pb2.SpeechRecognitionResult(
        alternatives=[whole], channel_tag=CHANNEL, audio_processed=seconds(response.audio_duration)
    )
    return riva_asr_pb2.RecognizeResponse(results=[result])


def set_speakers(response: riva_asr_pb2.RecognizeResponse, turns: Sequence[Turn]) -> None:
    """Add the speakers of words: numbers, counted from 1, for A, B, ...; 0 where unknown."""
    speakers = SpeakersOfTurns(turns)
    for result in response.results:
        for word in result.alternatives[0].words:
            word.speaker_tag = number_of(speakers.during(word.start_time / 1000, word.end_time / 1000))


async def set_live_speakers(
    response: riva_asr_pb2.StreamingRecognizeResponse, speakers: UtteranceSpeakers
) -> None:
    """Add the speakers of a final result's words, numbered as by :func:`set_speakers`."""
    for result in response.results:
        found = result.alternatives[0].words
        if not result.is_final or not found:
            continue
        words = tuple(Word(word.start_time / 1000, word.end_time / 1000, word.word, 0.0) for word in found)
        utterance = Segment(words[0].start_s, words[-1].end_s, (), "", words=words)
        for word, named in zip(found, (await speakers.named(utterance)).words, strict=True):
            word.speaker_tag = number_of(named.speaker)


def config_response(
    model: pb.GetModelResponse, names: Iterable[str]
) -> riva_asr_pb2.RivaSpeechRecognitionConfigResponse:
    """List each name of the target twice: Riva lists streaming models and others separately."""
    return riva_asr_pb2.RivaSpeechRecognitionConfigResponse(
        model_config=[
            riva_asr_pb2.RivaSpeechRecognitionConfigResponse.Config(
                model_name=name,
                parameters={
                    "type": kind,
                    "streaming": streams,
                    "language_code": ",".join(model.languages),
                    "sample_rate": str(SAMPLE_RATE),
                    "draft_model": model.model.draft,
                },
            )
            for name in names
            for kind, streams in MODEL_TYPES.items()
        ]
    )


class LiveReplies:
    """Converts responses to live audio; a final result is an utterance, or part of a long one."""

    def __init__(self, *, interim_results: bool) -> None:
        self._interim_results = interim_results
        self._pieces: list[pb.SpeechRecognitionResult] = []  # the open utterance's final results
        self._sent = ("", 0.0)  # its text and stability, as they were sent
        self._has_sent = False
        self._is_end_expected = False

    def expect_end(self) -> None:
        """Answer the next end of an utterance even if nothing was said."""
        self._is_end_expected = True

    def take(self, response: pb.StreamingRecognizeResponse) -> list[riva_asr_pb2.StreamingRecognizeResponse]:
        """Return Riva's responses for one update; each has at most one final result."""
        if not response.HasField("audio_received"):
            return []  # it names the model, or reports the start or end of speech
        audio_s = seconds(response.audio_received)
        replies = []
        for result in response.results:
            if not result.is_final:
                continue
            self._pieces.append(result)
            if result.is_utterance_end or self._num_tokens > MAX_FINAL_TOKENS:
                whole = alternative(self._pieces)
                # A noise without a word gets no result, unless interim results had a word.
                if whole.transcript or self._has_sent or self._is_end_expected:
                    replies.append(_live(whole, audio_s, is_final=True))
                self._is_end_expected &= not result.is_utterance_end
                self._pieces, self._sent, self._has_sent = [], ("", 0.0), False
        if self._interim_results:
            replies += self._interim(response, audio_s)
        return replies

    @property
    def _num_tokens(self) -> int:
        return sum(len(piece.alternatives[0].tokens) for piece in self._pieces)

    def _interim(
        self, response: pb.StreamingRecognizeResponse, audio_s: float
    ) -> list[riva_asr_pb2.StreamingRecognizeResponse]:
        """Return all text of the open utterance, as stable as its least stable part."""
        text = "".join(piece.alternatives[0].transcript for piece in self._pieces)
        stability = AGREED
        for result in response.results:
            if not result.is_final:
                text += result.alternatives[0].transcript
                its_own = WITH_STABLE_TEXT if is_stable(result.stability) else WITH_TENTATIVE_TEXT
                stability = min(stability, its_own)
        text = text.lstrip()
        if (text, stability) == self._sent:
            return []
        self._sent = (text, stability)
        self._has_sent = self._has_sent or bool(text)
        if not text:
            return []
        whole = riva_asr_pb2.SpeechRecognitionAlternative(transcript=text)
        return [_live(whole, audio_s, stability=stability)]


def _live(
    whole: riva_asr_pb2.SpeechRecognitionAlternative, audio_s: float, **state: Any
) -> riva_asr_pb2.StreamingRecognizeResponse:
    result = riva_asr_pb2.StreamingRecognitionResult(
        alternatives=[whole], channel_tag=CHANNEL, audio_processed=audio_s, **state
    )
    return riva_asr_pb2.StreamingRecognizeResponse(results=[result])


def seconds(duration: Duration) -> float:
    return float(duration.ToNanoseconds() / 1e9)


def milliseconds(duration: Duration) -> int:
    return round(duration.ToNanoseconds() / 1e6)
