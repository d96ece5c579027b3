from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_TARGET_ONLY: _ClassVar[Mode]
    MODE_SYNC: _ClassVar[Mode]
    MODE_PIPELINED: _ClassVar[Mode]
    MODE_FULL: _ClassVar[Mode]

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_UNSPECIFIED: _ClassVar[Task]
    TASK_TRANSCRIBE: _ClassVar[Task]
    TASK_TRANSLATE: _ClassVar[Task]

class CompressionRatio(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_RATIO_UNSPECIFIED: _ClassVar[CompressionRatio]
    COMPRESSION_RATIO_TOKENS: _ClassVar[CompressionRatio]
    COMPRESSION_RATIO_TEXT: _ClassVar[CompressionRatio]
MODE_UNSPECIFIED: Mode
MODE_TARGET_ONLY: Mode
MODE_SYNC: Mode
MODE_PIPELINED: Mode
MODE_FULL: Mode
TASK_UNSPECIFIED: Task
TASK_TRANSCRIBE: Task
TASK_TRANSLATE: Task
COMPRESSION_RATIO_UNSPECIFIED: CompressionRatio
COMPRESSION_RATIO_TOKENS: CompressionRatio
COMPRESSION_RATIO_TEXT: CompressionRatio

class DecodingOptions(_message.Message):
    __slots__ = ("language", "multilingual", "task", "timestamps", "word_timestamps", "max_new_tokens", "max_initial_timestamp_s", "temperatures", "top_k", "top_p", "seed", "acceptance_threshold", "compression_ratio_threshold", "compression_ratio_of", "logprob_threshold", "no_speech_threshold", "hallucination_silence_threshold", "condition_on_previous_text", "initial_prompt", "carry_initial_prompt", "hotwords", "hint", "realigns", "zero_padding", "log_mel_max", "live", "strict", "greedy", "channel", "audio_track", "container_times", "languages", "model_word_times")
    class LogMelMaxEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    MULTILINGUAL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    WORD_TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_INITIAL_TIMESTAMP_S_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_OF_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    HALLUCINATION_SILENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    CONDITION_ON_PREVIOUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    INITIAL_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CARRY_INITIAL_PROMPT_FIELD_NUMBER: _ClassVar[int]
    HOTWORDS_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    REALIGNS_FIELD_NUMBER: _ClassVar[int]
    ZERO_PADDING_FIELD_NUMBER: _ClassVar[int]
    LOG_MEL_MAX_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    GREEDY_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    AUDIO_TRACK_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_TIMES_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    MODEL_WORD_TIMES_FIELD_NUMBER: _ClassVar[int]
    language: str
    multilingual: bool
    task: Task
    timestamps: bool
    word_timestamps: bool
    max_new_tokens: int
    max_initial_timestamp_s: float
    temperatures: _containers.RepeatedScalarFieldContainer[float]
    top_k: int
    top_p: float
    seed: int
    acceptance_threshold: float
    compression_ratio_threshold: float
    compression_ratio_of: CompressionRatio
    logprob_threshold: float
    no_speech_threshold: float
    hallucination_silence_threshold: float
    condition_on_previous_text: bool
    initial_prompt: str
    carry_initial_prompt: bool
    hotwords: str
    hint: str
    realigns: bool
    zero_padding: bool
    log_mel_max: _containers.ScalarMap[int, float]
    live: LiveOptions
    strict: bool
    greedy: bool
    channel: str
    audio_track: int
    container_times: bool
    languages: _containers.RepeatedScalarFieldContainer[str]
    model_word_times: bool
    def __init__(self, language: _Optional[str] = ..., multilingual: bool = ..., task: _Optional[_Union[Task, str]] = ..., timestamps: bool = ..., word_timestamps: bool = ..., max_new_tokens: _Optional[int] = ..., max_initial_timestamp_s: _Optional[float] = ..., temperatures: _Optional[_Iterable[float]] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., acceptance_threshold: _Optional[float] = ..., compression_ratio_threshold: _Optional[float] = ..., compression_ratio_of: _Optional[_Union[CompressionRatio, str]] = ..., logprob_threshold: _Optional[float] = ..., no_speech_threshold: _Optional[float] = ..., hallucination_silence_threshold: _Optional[float] = ..., condition_on_previous_text: bool = ..., initial_prompt: _Optional[str] = ..., carry_initial_prompt: bool = ..., hotwords: _Optional[str] = ..., hint: _Optional[str] = ..., realigns: bool = ..., zero_padding: bool = ..., log_mel_max: _Optional[_Mapping[int, float]] = ..., live: _Optional[_Union[LiveOptions, _Mapping]] = ..., strict: bool = ..., greedy: bool = ..., channel: _Optional[str] = ..., audio_track: _Optional[int] = ..., container_times: bool = ..., languages: _Optional[_Iterable[str]] = ..., model_word_times: bool = ...) -> None: ...

class LiveOptions(_message.Message):
    __slots__ = ("step_ms", "confirm_every_ms", "position")
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    step_ms: int
    confirm_every_ms: int
    position: LivePosition
    def __init__(self, step_ms: _Optional[int] = ..., confirm_every_ms: _Optional[int] = ..., position: _Optional[_Union[LivePosition, _Mapping]] = ...) -> None: ...

class LivePosition(_message.Message):
    __slots__ = ("next_sample", "num_utterances", "is_speech", "pieces", "language", "num_ends")
    NEXT_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    NUM_UTTERANCES_FIELD_NUMBER: _ClassVar[int]
    IS_SPEECH_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_ENDS_FIELD_NUMBER: _ClassVar[int]
    next_sample: int
    num_utterances: int
    is_speech: bool
    pieces: _containers.RepeatedCompositeFieldContainer[FinalPiece]
    language: str
    num_ends: int
    def __init__(self, next_sample: _Optional[int] = ..., num_utterances: _Optional[int] = ..., is_speech: bool = ..., pieces: _Optional[_Iterable[_Union[FinalPiece, _Mapping]]] = ..., language: _Optional[str] = ..., num_ends: _Optional[int] = ...) -> None: ...

class FinalPiece(_message.Message):
    __slots__ = ("start_sample", "tokens")
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    start_sample: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start_sample: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...
