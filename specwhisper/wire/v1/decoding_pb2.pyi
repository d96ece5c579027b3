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

class AudioEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIO_ENCODING_UNSPECIFIED: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_LINEAR16: _ClassVar[AudioEncoding]
    AUDIO_ENCODING_FLAC: _ClassVar[AudioEncoding]

class CompressionRatio(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_RATIO_UNSPECIFIED: _ClassVar[CompressionRatio]
    COMPRESSION_RATIO_TEXT: _ClassVar[CompressionRatio]
    COMPRESSION_RATIO_TOKENS: _ClassVar[CompressionRatio]

class WordTimes(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORD_TIMES_UNSPECIFIED: _ClassVar[WordTimes]
    WORD_TIMES_SOUND: _ClassVar[WordTimes]
    WORD_TIMES_MODEL: _ClassVar[WordTimes]

class Padding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PADDING_UNSPECIFIED: _ClassVar[Padding]
    PADDING_SILENCE: _ClassVar[Padding]
    PADDING_ZERO: _ClassVar[Padding]
MODE_UNSPECIFIED: Mode
MODE_TARGET_ONLY: Mode
MODE_SYNC: Mode
MODE_PIPELINED: Mode
MODE_FULL: Mode
TASK_UNSPECIFIED: Task
TASK_TRANSCRIBE: Task
TASK_TRANSLATE: Task
AUDIO_ENCODING_UNSPECIFIED: AudioEncoding
AUDIO_ENCODING_LINEAR16: AudioEncoding
AUDIO_ENCODING_FLAC: AudioEncoding
COMPRESSION_RATIO_UNSPECIFIED: CompressionRatio
COMPRESSION_RATIO_TEXT: CompressionRatio
COMPRESSION_RATIO_TOKENS: CompressionRatio
WORD_TIMES_UNSPECIFIED: WordTimes
WORD_TIMES_SOUND: WordTimes
WORD_TIMES_MODEL: WordTimes
PADDING_UNSPECIFIED: Padding
PADDING_SILENCE: Padding
PADDING_ZERO: Padding

class Hint(_message.Message):
    __slots__ = ("start_sample", "text")
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    start_sample: int
    text: str
    def __init__(self, start_sample: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class DecodingOptions(_message.Message):
    __slots__ = ("languages", "multilingual", "task", "timestamps", "word_timestamps", "word_times", "max_new_tokens", "max_initial_timestamp_s", "greedy", "temperatures", "top_k", "top_p", "seed", "acceptance_threshold", "compression_ratio_threshold", "compression_ratio_of", "logprob_threshold", "no_speech_threshold", "hallucination_silence_threshold", "condition_on_previous_text", "initial_prompt", "carry_initial_prompt", "hotwords", "hint", "padding", "log_mel_max", "live")
    class LogMelMaxEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    MULTILINGUAL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    WORD_TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    WORD_TIMES_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_INITIAL_TIMESTAMP_S_FIELD_NUMBER: _ClassVar[int]
    GREEDY_FIELD_NUMBER: _ClassVar[int]
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
    PADDING_FIELD_NUMBER: _ClassVar[int]
    LOG_MEL_MAX_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    languages: _containers.RepeatedScalarFieldContainer[str]
    multilingual: bool
    task: Task
    timestamps: bool
    word_timestamps: bool
    word_times: WordTimes
    max_new_tokens: int
    max_initial_timestamp_s: float
    greedy: bool
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
    padding: Padding
    log_mel_max: _containers.ScalarMap[int, float]
    live: LiveOptions
    def __init__(self, languages: _Optional[_Iterable[str]] = ..., multilingual: bool = ..., task: _Optional[_Union[Task, str]] = ..., timestamps: bool = ..., word_timestamps: bool = ..., word_times: _Optional[_Union[WordTimes, str]] = ..., max_new_tokens: _Optional[int] = ..., max_initial_timestamp_s: _Optional[float] = ..., greedy: bool = ..., temperatures: _Optional[_Iterable[float]] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., acceptance_threshold: _Optional[float] = ..., compression_ratio_threshold: _Optional[float] = ..., compression_ratio_of: _Optional[_Union[CompressionRatio, str]] = ..., logprob_threshold: _Optional[float] = ..., no_speech_threshold: _Optional[float] = ..., hallucination_silence_threshold: _Optional[float] = ..., condition_on_previous_text: bool = ..., initial_prompt: _Optional[str] = ..., carry_initial_prompt: bool = ..., hotwords: _Optional[str] = ..., hint: _Optional[str] = ..., padding: _Optional[_Union[Padding, str]] = ..., log_mel_max: _Optional[_Mapping[int, float]] = ..., live: _Optional[_Union[LiveOptions, _Mapping]] = ...) -> None: ...

class LiveOptions(_message.Message):
    __slots__ = ("step_ms", "confirm_every_ms")
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    step_ms: int
    confirm_every_ms: int
    def __init__(self, step_ms: _Optional[int] = ..., confirm_every_ms: _Optional[int] = ...) -> None: ...
