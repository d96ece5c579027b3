import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from specwhisper.wire.v1 import decoding_pb2 as _decoding_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SpeechEvent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPEECH_EVENT_UNSPECIFIED: _ClassVar[SpeechEvent]
    SPEECH_EVENT_BEGIN: _ClassVar[SpeechEvent]
    SPEECH_EVENT_END: _ClassVar[SpeechEvent]
SPEECH_EVENT_UNSPECIFIED: SpeechEvent
SPEECH_EVENT_BEGIN: SpeechEvent
SPEECH_EVENT_END: SpeechEvent

class RecognitionConfig(_message.Message):
    __slots__ = ("encoding", "sample_rate_hertz", "audio_channel_count", "mode", "gamma", "decoding", "channel", "audio_track", "container_times", "strict", "protocol_version", "software_version")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_HERTZ_FIELD_NUMBER: _ClassVar[int]
    AUDIO_CHANNEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    DECODING_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AUDIO_TRACK_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_TIMES_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    encoding: _decoding_pb2.AudioEncoding
    sample_rate_hertz: int
    audio_channel_count: int
    mode: _decoding_pb2.Mode
    gamma: int
    decoding: _decoding_pb2.DecodingOptions
    channel: str
    audio_track: int
    container_times: bool
    strict: bool
    protocol_version: int
    software_version: str
    def __init__(self, encoding: _Optional[_Union[_decoding_pb2.AudioEncoding, str]] = ..., sample_rate_hertz: _Optional[int] = ..., audio_channel_count: _Optional[int] = ..., mode: _Optional[_Union[_decoding_pb2.Mode, str]] = ..., gamma: _Optional[int] = ..., decoding: _Optional[_Union[_decoding_pb2.DecodingOptions, _Mapping]] = ..., channel: _Optional[str] = ..., audio_track: _Optional[int] = ..., container_times: bool = ..., strict: bool = ..., protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ...) -> None: ...

class RecognizeRequest(_message.Message):
    __slots__ = ("config", "audio")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    config: RecognitionConfig
    audio: bytes
    def __init__(self, config: _Optional[_Union[RecognitionConfig, _Mapping]] = ..., audio: _Optional[bytes] = ...) -> None: ...

class RecognizeResponse(_message.Message):
    __slots__ = ("results", "model", "statistics", "audio_duration", "language", "warnings")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_DURATION_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SpeechRecognitionResult]
    model: ModelInfo
    statistics: SpeculationStatistics
    audio_duration: _duration_pb2.Duration
    language: SpokenLanguage
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, results: _Optional[_Iterable[_Union[SpeechRecognitionResult, _Mapping]]] = ..., model: _Optional[_Union[ModelInfo, _Mapping]] = ..., statistics: _Optional[_Union[SpeculationStatistics, _Mapping]] = ..., audio_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., language: _Optional[_Union[SpokenLanguage, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class StreamingRecognizeRequest(_message.Message):
    __slots__ = ("streaming_config", "audio_content", "flac_content", "hint", "end_utterance", "ping")
    STREAMING_CONFIG_FIELD_NUMBER: _ClassVar[int]
    AUDIO_CONTENT_FIELD_NUMBER: _ClassVar[int]
    FLAC_CONTENT_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    END_UTTERANCE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    streaming_config: StreamingRecognitionConfig
    audio_content: bytes
    flac_content: bytes
    hint: _decoding_pb2.Hint
    end_utterance: EndUtterance
    ping: int
    def __init__(self, streaming_config: _Optional[_Union[StreamingRecognitionConfig, _Mapping]] = ..., audio_content: _Optional[bytes] = ..., flac_content: _Optional[bytes] = ..., hint: _Optional[_Union[_decoding_pb2.Hint, _Mapping]] = ..., end_utterance: _Optional[_Union[EndUtterance, _Mapping]] = ..., ping: _Optional[int] = ...) -> None: ...

class EndUtterance(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamingRecognitionConfig(_message.Message):
    __slots__ = ("config", "interim_results", "endpointing", "continue_unverified", "with_resume_points", "resume_point", "with_heartbeats", "with_statistics", "added_latency_ms")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    INTERIM_RESULTS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTING_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_UNVERIFIED_FIELD_NUMBER: _ClassVar[int]
    WITH_RESUME_POINTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_POINT_FIELD_NUMBER: _ClassVar[int]
    WITH_HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    WITH_STATISTICS_FIELD_NUMBER: _ClassVar[int]
    ADDED_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    config: RecognitionConfig
    interim_results: bool
    endpointing: Endpointing
    continue_unverified: bool
    with_resume_points: bool
    resume_point: ResumePoint
    with_heartbeats: bool
    with_statistics: bool
    added_latency_ms: int
    def __init__(self, config: _Optional[_Union[RecognitionConfig, _Mapping]] = ..., interim_results: bool = ..., endpointing: _Optional[_Union[Endpointing, _Mapping]] = ..., continue_unverified: bool = ..., with_resume_points: bool = ..., resume_point: _Optional[_Union[ResumePoint, _Mapping]] = ..., with_heartbeats: bool = ..., with_statistics: bool = ..., added_latency_ms: _Optional[int] = ...) -> None: ...

class Endpointing(_message.Message):
    __slots__ = ("threshold", "prefix_padding_ms", "silence_duration_ms", "short_silence_ms", "min_utterance_ms", "max_piece_ms", "min_speech_ms", "disabled")
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    PREFIX_PADDING_MS_FIELD_NUMBER: _ClassVar[int]
    SILENCE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    SHORT_SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_UTTERANCE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_PIECE_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_SPEECH_MS_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    threshold: float
    prefix_padding_ms: int
    silence_duration_ms: int
    short_silence_ms: int
    min_utterance_ms: int
    max_piece_ms: int
    min_speech_ms: int
    disabled: bool
    def __init__(self, threshold: _Optional[float] = ..., prefix_padding_ms: _Optional[int] = ..., silence_duration_ms: _Optional[int] = ..., short_silence_ms: _Optional[int] = ..., min_utterance_ms: _Optional[int] = ..., max_piece_ms: _Optional[int] = ..., min_speech_ms: _Optional[int] = ..., disabled: bool = ...) -> None: ...

class StreamingRecognizeResponse(_message.Message):
    __slots__ = ("results", "model", "statistics", "audio_received", "language", "speech_event", "speech_event_offset", "resume_point", "heartbeat", "ping")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    AUDIO_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    SPEECH_EVENT_FIELD_NUMBER: _ClassVar[int]
    SPEECH_EVENT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESUME_POINT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SpeechRecognitionResult]
    model: ModelInfo
    statistics: SpeculationStatistics
    audio_received: _duration_pb2.Duration
    language: SpokenLanguage
    speech_event: SpeechEvent
    speech_event_offset: _duration_pb2.Duration
    resume_point: ResumePoint
    heartbeat: bool
    ping: int
    def __init__(self, results: _Optional[_Iterable[_Union[SpeechRecognitionResult, _Mapping]]] = ..., model: _Optional[_Union[ModelInfo, _Mapping]] = ..., statistics: _Optional[_Union[SpeculationStatistics, _Mapping]] = ..., audio_received: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., language: _Optional[_Union[SpokenLanguage, _Mapping]] = ..., speech_event: _Optional[_Union[SpeechEvent, str]] = ..., speech_event_offset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., resume_point: _Optional[_Union[ResumePoint, _Mapping]] = ..., heartbeat: bool = ..., ping: _Optional[int] = ...) -> None: ...

class ResumePoint(_message.Message):
    __slots__ = ("state", "start_sample", "num_ends")
    STATE_FIELD_NUMBER: _ClassVar[int]
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    NUM_ENDS_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    start_sample: int
    num_ends: int
    def __init__(self, state: _Optional[bytes] = ..., start_sample: _Optional[int] = ..., num_ends: _Optional[int] = ...) -> None: ...

class SpokenLanguage(_message.Message):
    __slots__ = ("code", "name", "probabilities")
    class ProbabilitiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    code: str
    name: str
    probabilities: _containers.ScalarMap[str, float]
    def __init__(self, code: _Optional[str] = ..., name: _Optional[str] = ..., probabilities: _Optional[_Mapping[str, float]] = ...) -> None: ...

class SpeechRecognitionResult(_message.Message):
    __slots__ = ("alternatives", "is_final", "stability", "start_offset", "end_offset", "language_code", "utterance", "is_utterance_end", "is_unverified")
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    STABILITY_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    UTTERANCE_FIELD_NUMBER: _ClassVar[int]
    IS_UTTERANCE_END_FIELD_NUMBER: _ClassVar[int]
    IS_UNVERIFIED_FIELD_NUMBER: _ClassVar[int]
    alternatives: _containers.RepeatedCompositeFieldContainer[SpeechRecognitionAlternative]
    is_final: bool
    stability: float
    start_offset: _duration_pb2.Duration
    end_offset: _duration_pb2.Duration
    language_code: str
    utterance: int
    is_utterance_end: bool
    is_unverified: bool
    def __init__(self, alternatives: _Optional[_Iterable[_Union[SpeechRecognitionAlternative, _Mapping]]] = ..., is_final: bool = ..., stability: _Optional[float] = ..., start_offset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., end_offset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., language_code: _Optional[str] = ..., utterance: _Optional[int] = ..., is_utterance_end: bool = ..., is_unverified: bool = ...) -> None: ...

class SpeechRecognitionAlternative(_message.Message):
    __slots__ = ("transcript", "confidence", "words", "tokens", "avg_logprob", "compression_ratio", "temperature", "no_speech_prob", "seek")
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    AVG_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PROB_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    transcript: str
    confidence: float
    words: _containers.RepeatedCompositeFieldContainer[WordInfo]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    avg_logprob: float
    compression_ratio: float
    temperature: float
    no_speech_prob: float
    seek: int
    def __init__(self, transcript: _Optional[str] = ..., confidence: _Optional[float] = ..., words: _Optional[_Iterable[_Union[WordInfo, _Mapping]]] = ..., tokens: _Optional[_Iterable[int]] = ..., avg_logprob: _Optional[float] = ..., compression_ratio: _Optional[float] = ..., temperature: _Optional[float] = ..., no_speech_prob: _Optional[float] = ..., seek: _Optional[int] = ...) -> None: ...

class WordInfo(_message.Message):
    __slots__ = ("start_offset", "end_offset", "word", "confidence")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    start_offset: _duration_pb2.Duration
    end_offset: _duration_pb2.Duration
    word: str
    confidence: float
    def __init__(self, start_offset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., end_offset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., word: _Optional[str] = ..., confidence: _Optional[float] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("target", "draft", "target_weights_digest", "mode", "gamma", "is_lossy")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    TARGET_WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    IS_LOSSY_FIELD_NUMBER: _ClassVar[int]
    target: str
    draft: str
    target_weights_digest: str
    mode: _decoding_pb2.Mode
    gamma: int
    is_lossy: bool
    def __init__(self, target: _Optional[str] = ..., draft: _Optional[str] = ..., target_weights_digest: _Optional[str] = ..., mode: _Optional[_Union[_decoding_pb2.Mode, str]] = ..., gamma: _Optional[int] = ..., is_lossy: bool = ...) -> None: ...

class SpeculationStatistics(_message.Message):
    __slots__ = ("num_drafted", "num_verified", "num_accepted", "num_hinted", "num_hinted_accepted", "num_self_decoded", "num_committed", "num_forwards", "num_align_forwards", "acceptance_histogram", "num_blocks", "num_windows", "queue_ns", "forward_ns", "encode_ns", "align_ns", "draft_ns", "min_round_trip_ns", "network_ns", "num_answers", "num_judged", "num_corrections", "num_realigned", "num_draft_steps", "token_ns", "gamma", "draft_note")
    NUM_DRAFTED_FIELD_NUMBER: _ClassVar[int]
    NUM_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NUM_HINTED_FIELD_NUMBER: _ClassVar[int]
    NUM_HINTED_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NUM_SELF_DECODED_FIELD_NUMBER: _ClassVar[int]
    NUM_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    NUM_FORWARDS_FIELD_NUMBER: _ClassVar[int]
    NUM_ALIGN_FORWARDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_WINDOWS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_NS_FIELD_NUMBER: _ClassVar[int]
    ALIGN_NS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_NS_FIELD_NUMBER: _ClassVar[int]
    MIN_ROUND_TRIP_NS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    NUM_JUDGED_FIELD_NUMBER: _ClassVar[int]
    NUM_CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_REALIGNED_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_NS_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_NOTE_FIELD_NUMBER: _ClassVar[int]
    num_drafted: int
    num_verified: int
    num_accepted: int
    num_hinted: int
    num_hinted_accepted: int
    num_self_decoded: int
    num_committed: int
    num_forwards: int
    num_align_forwards: int
    acceptance_histogram: _containers.RepeatedScalarFieldContainer[int]
    num_blocks: int
    num_windows: int
    queue_ns: int
    forward_ns: int
    encode_ns: int
    align_ns: int
    draft_ns: int
    min_round_trip_ns: int
    network_ns: int
    num_answers: int
    num_judged: int
    num_corrections: int
    num_realigned: int
    num_draft_steps: int
    token_ns: int
    gamma: int
    draft_note: str
    def __init__(self, num_drafted: _Optional[int] = ..., num_verified: _Optional[int] = ..., num_accepted: _Optional[int] = ..., num_hinted: _Optional[int] = ..., num_hinted_accepted: _Optional[int] = ..., num_self_decoded: _Optional[int] = ..., num_committed: _Optional[int] = ..., num_forwards: _Optional[int] = ..., num_align_forwards: _Optional[int] = ..., acceptance_histogram: _Optional[_Iterable[int]] = ..., num_blocks: _Optional[int] = ..., num_windows: _Optional[int] = ..., queue_ns: _Optional[int] = ..., forward_ns: _Optional[int] = ..., encode_ns: _Optional[int] = ..., align_ns: _Optional[int] = ..., draft_ns: _Optional[int] = ..., min_round_trip_ns: _Optional[int] = ..., network_ns: _Optional[int] = ..., num_answers: _Optional[int] = ..., num_judged: _Optional[int] = ..., num_corrections: _Optional[int] = ..., num_realigned: _Optional[int] = ..., num_draft_steps: _Optional[int] = ..., token_ns: _Optional[int] = ..., gamma: _Optional[int] = ..., draft_note: _Optional[str] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model", "languages", "max_message_bytes", "max_sessions", "software_version", "log_mel_max_bins", "protocol_version", "allows_latency_injection")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_MEL_MAX_BINS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ALLOWS_LATENCY_INJECTION_FIELD_NUMBER: _ClassVar[int]
    model: ModelInfo
    languages: _containers.RepeatedScalarFieldContainer[str]
    max_message_bytes: int
    max_sessions: int
    software_version: str
    log_mel_max_bins: _containers.RepeatedScalarFieldContainer[int]
    protocol_version: int
    allows_latency_injection: bool
    def __init__(self, model: _Optional[_Union[ModelInfo, _Mapping]] = ..., languages: _Optional[_Iterable[str]] = ..., max_message_bytes: _Optional[int] = ..., max_sessions: _Optional[int] = ..., software_version: _Optional[str] = ..., log_mel_max_bins: _Optional[_Iterable[int]] = ..., protocol_version: _Optional[int] = ..., allows_latency_injection: bool = ...) -> None: ...
