"""Convert the client's values to and from the messages of ``transcription.proto``."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from specwhisper import __version__
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.types import SAMPLE_RATE, Mode, Segment, VoiceEvent, Word
from specwhisper.wire import CLIENT_PROTOCOL_VERSION, is_settled, is_stable, is_verified
from specwhisper.wire.codec import (
    mode_from_proto,
    mode_to_proto,
    recognition_config_to_proto,
    statistics_from_proto,
)
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.updates import ResumePoint, ServerInfo, Update

SPEECH_EVENTS = {
    int(pb.SPEECH_EVENT_BEGIN): VoiceEvent.BEGIN,
    int(pb.SPEECH_EVENT_END): VoiceEvent.END,
}


def config_to_proto(
    options: DecodingOptions, mode: Mode | None, gamma: int | None, *, is_container: bool
) -> pb.RecognitionConfig:
    """Return a request's configuration; the server chooses what is ``None``."""
    config = recognition_config_to_proto(options)
    config.protocol_version, config.software_version = CLIENT_PROTOCOL_VERSION, __version__
    config.gamma = gamma or 0
    if mode is not None:
        config.mode = mode_to_proto(mode)
    if not is_container:
        config.encoding = decoding_pb2.AUDIO_ENCODING_LINEAR16
        config.sample_rate_hertz = SAMPLE_RATE
        config.audio_channel_count = 1
    return config


def segments_from_proto(results: Iterable[pb.SpeechRecognitionResult]) -> tuple[Segment, ...]:
    """Return the final ones among a response's results as segments."""
    return tuple(_segment(result) for result in results if result.is_final and result.alternatives)


def _segment(result: pb.SpeechRecognitionResult) -> Segment:
    best = result.alternatives[0]
    return Segment(
        start_s=seconds(result.start_offset),
        end_s=seconds(result.end_offset),
        tokens=tuple(best.tokens),
        text=best.transcript,
        confidence=best.confidence,
        avg_logprob=best.avg_logprob,
        compression_ratio=best.compression_ratio,
        temperature=best.temperature,
        no_speech_prob=best.no_speech_prob if best.HasField("no_speech_prob") else None,
        seek=best.seek,
        language=result.language_code,
        words=tuple(
            Word(seconds(word.start_offset), seconds(word.end_offset), word.word, word.confidence)
            for word in best.words
        ),
        utterance=result.utterance,
        is_utterance_end=result.is_utterance_end,
    )


def update_from_proto(response: pb.StreamingRecognizeResponse) -> Update:
    settled, verified, stable, tentative, is_unverified = "", "", "", "", False
    for result in response.results:
        if result.is_final or not result.alternatives:
            continue
        text = result.alternatives[0].transcript
        is_unverified |= result.is_unverified
        if is_verified(result.stability):
            verified += text
            if is_settled(result.stability):
                settled = verified
        elif is_stable(result.stability):
            stable += text
        else:
            tentative += text
    return Update(
        segments_from_proto(response.results),
        verified,
        stable,
        tentative,
        speech=SPEECH_EVENTS.get(response.speech_event),
        speech_at_s=seconds(response.speech_event_offset),
        received_s=seconds(response.audio_received),
        statistics=statistics_from_proto(response.statistics) if response.HasField("statistics") else None,
        is_unverified=is_unverified,
        settled_text=settled,
    )


def resume_point_to_proto(point: ResumePoint) -> pb.ResumePoint:
    return pb.ResumePoint(state=point.state, start_sample=point.start_sample, num_ends=point.num_ends)


def resume_point_from_proto(message: pb.ResumePoint) -> ResumePoint:
    return ResumePoint(message.state, message.start_sample, message.num_ends)


def model_from_proto(message: pb.ModelInfo) -> ModelInfo:
    return ModelInfo(
        target=message.target,
        draft=message.draft,
        target_weights_digest=message.target_weights_digest,
        mode=mode_from_proto(message.mode),
        gamma=message.gamma,
        is_lossy=message.is_lossy,
    )


def server_from_proto(message: pb.GetModelResponse) -> ServerInfo:
    return ServerInfo(
        model=model_from_proto(message.model),
        languages=tuple(message.languages),
        max_message_bytes=message.max_message_bytes,
        max_sessions=message.max_sessions,
        software_version=message.software_version,
        allows_latency_injection=message.allows_latency_injection,
    )


def seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 1e9
