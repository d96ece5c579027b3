from specwhisper.wire.v1 import decoding_pb2 as _decoding_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VoiceEvent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VOICE_EVENT_UNSPECIFIED: _ClassVar[VoiceEvent]
    VOICE_EVENT_BEGIN: _ClassVar[VoiceEvent]
    VOICE_EVENT_CUT: _ClassVar[VoiceEvent]
    VOICE_EVENT_END: _ClassVar[VoiceEvent]
    VOICE_EVENT_BREAK: _ClassVar[VoiceEvent]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_KEPT: _ClassVar[Outcome]
    OUTCOME_RETRIED: _ClassVar[Outcome]
    OUTCOME_SKIPPED: _ClassVar[Outcome]
VOICE_EVENT_UNSPECIFIED: VoiceEvent
VOICE_EVENT_BEGIN: VoiceEvent
VOICE_EVENT_CUT: VoiceEvent
VOICE_EVENT_END: VoiceEvent
VOICE_EVENT_BREAK: VoiceEvent
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_KEPT: Outcome
OUTCOME_RETRIED: Outcome
OUTCOME_SKIPPED: Outcome

class LocateRequest(_message.Message):
    __slots__ = ("weights_digest", "vocabulary_digest", "protocol_version", "avoid", "software_version")
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    weights_digest: str
    vocabulary_digest: str
    protocol_version: int
    avoid: _containers.RepeatedScalarFieldContainer[str]
    software_version: str
    def __init__(self, weights_digest: _Optional[str] = ..., vocabulary_digest: _Optional[str] = ..., protocol_version: _Optional[int] = ..., avoid: _Optional[_Iterable[str]] = ..., software_version: _Optional[str] = ...) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("address", "lease", "free_slots", "is_standby", "answer_s")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    IS_STANDBY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_S_FIELD_NUMBER: _ClassVar[int]
    address: str
    lease: str
    free_slots: int
    is_standby: bool
    answer_s: float
    def __init__(self, address: _Optional[str] = ..., lease: _Optional[str] = ..., free_slots: _Optional[int] = ..., is_standby: bool = ..., answer_s: _Optional[float] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("vocabulary_digest",)
    VOCABULARY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    vocabulary_digest: str
    def __init__(self, vocabulary_digest: _Optional[str] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("protocol_version", "software_version", "model", "weights_digest", "vocabulary_digest", "vocabulary", "num_mel_bins", "limits")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    NUM_MEL_BINS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    software_version: str
    model: str
    weights_digest: str
    vocabulary_digest: str
    vocabulary: Vocabulary
    num_mel_bins: int
    limits: Limits
    def __init__(self, protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., model: _Optional[str] = ..., weights_digest: _Optional[str] = ..., vocabulary_digest: _Optional[str] = ..., vocabulary: _Optional[_Union[Vocabulary, _Mapping]] = ..., num_mel_bins: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Vocabulary(_message.Message):
    __slots__ = ("tokens", "end_of_text", "start_of_transcript", "no_timestamps", "timestamp_begin", "languages", "tasks", "suppress", "begin_suppress", "max_initial_timestamp", "max_length", "start_of_prev", "no_speech", "own_language")
    class LanguagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    END_OF_TEXT_FIELD_NUMBER: _ClassVar[int]
    START_OF_TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    NO_TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_BEGIN_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_SUPPRESS_FIELD_NUMBER: _ClassVar[int]
    MAX_INITIAL_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    START_OF_PREV_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_FIELD_NUMBER: _ClassVar[int]
    OWN_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    end_of_text: int
    start_of_transcript: int
    no_timestamps: int
    timestamp_begin: int
    languages: _containers.ScalarMap[str, int]
    tasks: _containers.ScalarMap[str, int]
    suppress: _containers.RepeatedScalarFieldContainer[int]
    begin_suppress: _containers.RepeatedScalarFieldContainer[int]
    max_initial_timestamp: int
    max_length: int
    start_of_prev: int
    no_speech: int
    own_language: str
    def __init__(self, tokens: _Optional[_Iterable[str]] = ..., end_of_text: _Optional[int] = ..., start_of_transcript: _Optional[int] = ..., no_timestamps: _Optional[int] = ..., timestamp_begin: _Optional[int] = ..., languages: _Optional[_Mapping[str, int]] = ..., tasks: _Optional[_Mapping[str, int]] = ..., suppress: _Optional[_Iterable[int]] = ..., begin_suppress: _Optional[_Iterable[int]] = ..., max_initial_timestamp: _Optional[int] = ..., max_length: _Optional[int] = ..., start_of_prev: _Optional[int] = ..., no_speech: _Optional[int] = ..., own_language: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_block_tokens", "max_ahead_tokens", "max_ahead_samples")
    MAX_BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    max_block_tokens: int
    max_ahead_tokens: int
    max_ahead_samples: int
    def __init__(self, max_block_tokens: _Optional[int] = ..., max_ahead_tokens: _Optional[int] = ..., max_ahead_samples: _Optional[int] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("hello", "audio", "resume", "heartbeat", "hint", "position", "confirm_every")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_EVERY_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    audio: Audio
    resume: Resume
    heartbeat: Heartbeat
    hint: _decoding_pb2.Hint
    position: LivePosition
    confirm_every: ConfirmEvery
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., audio: _Optional[_Union[Audio, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., hint: _Optional[_Union[_decoding_pb2.Hint, _Mapping]] = ..., position: _Optional[_Union[LivePosition, _Mapping]] = ..., confirm_every: _Optional[_Union[ConfirmEvery, _Mapping]] = ...) -> None: ...

class ConfirmEvery(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "software_version", "draft_model", "vocabulary_digest", "weights_digest", "mode", "decoding", "lease", "session", "share_key", "share_number")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAFT_MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DECODING_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SHARE_KEY_FIELD_NUMBER: _ClassVar[int]
    SHARE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    software_version: str
    draft_model: str
    vocabulary_digest: str
    weights_digest: str
    mode: _decoding_pb2.Mode
    decoding: _decoding_pb2.DecodingOptions
    lease: str
    session: str
    share_key: str
    share_number: int
    def __init__(self, protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., draft_model: _Optional[str] = ..., vocabulary_digest: _Optional[str] = ..., weights_digest: _Optional[str] = ..., mode: _Optional[_Union[_decoding_pb2.Mode, str]] = ..., decoding: _Optional[_Union[_decoding_pb2.DecodingOptions, _Mapping]] = ..., lease: _Optional[str] = ..., session: _Optional[str] = ..., share_key: _Optional[str] = ..., share_number: _Optional[int] = ...) -> None: ...

class Audio(_message.Message):
    __slots__ = ("start_sample", "encoding", "data", "is_last", "marks")
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    start_sample: int
    encoding: _decoding_pb2.AudioEncoding
    data: bytes
    is_last: bool
    marks: _containers.RepeatedCompositeFieldContainer[VoiceMark]
    def __init__(self, start_sample: _Optional[int] = ..., encoding: _Optional[_Union[_decoding_pb2.AudioEncoding, str]] = ..., data: _Optional[bytes] = ..., is_last: bool = ..., marks: _Optional[_Iterable[_Union[VoiceMark, _Mapping]]] = ...) -> None: ...

class VoiceMark(_message.Message):
    __slots__ = ("event", "sample")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    event: VoiceEvent
    sample: int
    def __init__(self, event: _Optional[_Union[VoiceEvent, str]] = ..., sample: _Optional[int] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ("window_id", "base", "known_committed", "tokens", "block_number", "start_frame")
    WINDOW_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FRAME_FIELD_NUMBER: _ClassVar[int]
    window_id: int
    base: int
    known_committed: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    block_number: int
    start_frame: int
    def __init__(self, window_id: _Optional[int] = ..., base: _Optional[int] = ..., known_committed: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., block_number: _Optional[int] = ..., start_frame: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("window", "committed", "log_probs")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    window: Window
    committed: _containers.RepeatedScalarFieldContainer[int]
    log_probs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., committed: _Optional[_Iterable[int]] = ..., log_probs: _Optional[_Iterable[float]] = ...) -> None: ...

class LivePosition(_message.Message):
    __slots__ = ("next_sample", "num_utterances", "is_speech", "pieces", "language")
    NEXT_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    NUM_UTTERANCES_FIELD_NUMBER: _ClassVar[int]
    IS_SPEECH_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    next_sample: int
    num_utterances: int
    is_speech: bool
    pieces: _containers.RepeatedCompositeFieldContainer[FinalPiece]
    language: str
    def __init__(self, next_sample: _Optional[int] = ..., num_utterances: _Optional[int] = ..., is_speech: bool = ..., pieces: _Optional[_Iterable[_Union[FinalPiece, _Mapping]]] = ..., language: _Optional[str] = ...) -> None: ...

class FinalPiece(_message.Message):
    __slots__ = ("start_sample", "tokens")
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    start_sample: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start_sample: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sent_ns", "echo_ns")
    SENT_NS_FIELD_NUMBER: _ClassVar[int]
    ECHO_NS_FIELD_NUMBER: _ClassVar[int]
    sent_ns: int
    echo_ns: int
    def __init__(self, sent_ns: _Optional[int] = ..., echo_ns: _Optional[int] = ...) -> None: ...

class VerifyResponse(_message.Message):
    __slots__ = ("welcome", "heartbeat", "going_away")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    heartbeat: Heartbeat
    going_away: GoingAway
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., going_away: _Optional[_Union[GoingAway, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("weights_digest", "limits")
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    weights_digest: str
    limits: Limits
    def __init__(self, weights_digest: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class ShareRequest(_message.Message):
    __slots__ = ("key", "candidates", "heartbeat")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    key: str
    candidates: _containers.RepeatedCompositeFieldContainer[SharedCandidates]
    heartbeat: Heartbeat
    def __init__(self, key: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[SharedCandidates, _Mapping]]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class SharedCandidates(_message.Message):
    __slots__ = ("number", "candidates")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    number: int
    candidates: Candidates
    def __init__(self, number: _Optional[int] = ..., candidates: _Optional[_Union[Candidates, _Mapping]] = ...) -> None: ...

class ShareResponse(_message.Message):
    __slots__ = ("events", "heartbeat")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[SharedEvent]
    heartbeat: Heartbeat
    def __init__(self, events: _Optional[_Iterable[_Union[SharedEvent, _Mapping]]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class SharedEvent(_message.Message):
    __slots__ = ("number", "window_opened", "commit", "is_finished")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WINDOW_OPENED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    IS_FINISHED_FIELD_NUMBER: _ClassVar[int]
    number: int
    window_opened: WindowOpened
    commit: Commit
    is_finished: bool
    def __init__(self, number: _Optional[int] = ..., window_opened: _Optional[_Union[WindowOpened, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., is_finished: bool = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("id", "start_frame", "num_frames", "prompt", "max_new_tokens", "temperature", "attempt", "redetects", "prefix", "log_mel_max", "previous")
    ID_FIELD_NUMBER: _ClassVar[int]
    START_FRAME_FIELD_NUMBER: _ClassVar[int]
    NUM_FRAMES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REDETECTS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LOG_MEL_MAX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    id: int
    start_frame: int
    num_frames: int
    prompt: _containers.RepeatedScalarFieldContainer[int]
    max_new_tokens: int
    temperature: float
    attempt: int
    redetects: bool
    prefix: _containers.RepeatedScalarFieldContainer[int]
    log_mel_max: float
    previous: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., start_frame: _Optional[int] = ..., num_frames: _Optional[int] = ..., prompt: _Optional[_Iterable[int]] = ..., max_new_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., attempt: _Optional[int] = ..., redetects: bool = ..., prefix: _Optional[_Iterable[int]] = ..., log_mel_max: _Optional[float] = ..., previous: _Optional[_Iterable[int]] = ...) -> None: ...

class WindowOpened(_message.Message):
    __slots__ = ("window", "opening", "language_probs")
    class LanguageProbsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_PROBS_FIELD_NUMBER: _ClassVar[int]
    window: Window
    opening: _containers.RepeatedScalarFieldContainer[int]
    language_probs: _containers.ScalarMap[str, float]
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., opening: _Optional[_Iterable[int]] = ..., language_probs: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("window_id", "base", "tokens", "log_probs", "num_verified", "num_accepted", "num_hinted", "num_hinted_first", "num_self_decoded", "answered_block", "held", "credit", "is_final", "outcome", "no_speech_prob", "words", "num_transcribed", "piece", "queue_ns", "forward_ns", "batch_size", "block_age_ns", "token_ns", "encode_ns", "detect_ns", "num_align_forwards", "align_ns")
    WINDOW_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    NUM_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NUM_HINTED_FIELD_NUMBER: _ClassVar[int]
    NUM_HINTED_FIRST_FIELD_NUMBER: _ClassVar[int]
    NUM_SELF_DECODED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BLOCK_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PROB_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    NUM_TRANSCRIBED_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_NS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_NS_FIELD_NUMBER: _ClassVar[int]
    DETECT_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_ALIGN_FORWARDS_FIELD_NUMBER: _ClassVar[int]
    ALIGN_NS_FIELD_NUMBER: _ClassVar[int]
    window_id: int
    base: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    log_probs: _containers.RepeatedScalarFieldContainer[float]
    num_verified: int
    num_accepted: int
    num_hinted: int
    num_hinted_first: int
    num_self_decoded: int
    answered_block: int
    held: int
    credit: int
    is_final: bool
    outcome: Outcome
    no_speech_prob: float
    words: _containers.RepeatedCompositeFieldContainer[WordAlignment]
    num_transcribed: int
    piece: CompletePiece
    queue_ns: int
    forward_ns: int
    batch_size: int
    block_age_ns: int
    token_ns: int
    encode_ns: int
    detect_ns: int
    num_align_forwards: int
    align_ns: int
    def __init__(self, window_id: _Optional[int] = ..., base: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., log_probs: _Optional[_Iterable[float]] = ..., num_verified: _Optional[int] = ..., num_accepted: _Optional[int] = ..., num_hinted: _Optional[int] = ..., num_hinted_first: _Optional[int] = ..., num_self_decoded: _Optional[int] = ..., answered_block: _Optional[int] = ..., held: _Optional[int] = ..., credit: _Optional[int] = ..., is_final: bool = ..., outcome: _Optional[_Union[Outcome, str]] = ..., no_speech_prob: _Optional[float] = ..., words: _Optional[_Iterable[_Union[WordAlignment, _Mapping]]] = ..., num_transcribed: _Optional[int] = ..., piece: _Optional[_Union[CompletePiece, _Mapping]] = ..., queue_ns: _Optional[int] = ..., forward_ns: _Optional[int] = ..., batch_size: _Optional[int] = ..., block_age_ns: _Optional[int] = ..., token_ns: _Optional[int] = ..., encode_ns: _Optional[int] = ..., detect_ns: _Optional[int] = ..., num_align_forwards: _Optional[int] = ..., align_ns: _Optional[int] = ...) -> None: ...

class CompletePiece(_message.Message):
    __slots__ = ("utterance", "start_sample", "is_utterance_end")
    UTTERANCE_FIELD_NUMBER: _ClassVar[int]
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    IS_UTTERANCE_END_FIELD_NUMBER: _ClassVar[int]
    utterance: int
    start_sample: int
    is_utterance_end: bool
    def __init__(self, utterance: _Optional[int] = ..., start_sample: _Optional[int] = ..., is_utterance_end: bool = ...) -> None: ...

class WordAlignment(_message.Message):
    __slots__ = ("base", "num_tokens", "start_sample", "end_sample")
    BASE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    START_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    END_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    base: int
    num_tokens: int
    start_sample: int
    end_sample: int
    def __init__(self, base: _Optional[int] = ..., num_tokens: _Optional[int] = ..., start_sample: _Optional[int] = ..., end_sample: _Optional[int] = ...) -> None: ...

class GoingAway(_message.Message):
    __slots__ = ("reason", "grace_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    grace_s: float
    def __init__(self, reason: _Optional[str] = ..., grace_s: _Optional[float] = ...) -> None: ...
