from specwhisper.wire.v1 import verification_pb2 as _verification_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResumePointState(_message.Message):
    __slots__ = ("protocol_version", "weights_digest", "recording", "live")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RECORDING_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    weights_digest: str
    recording: RecordingProgress
    live: _verification_pb2.LivePosition
    def __init__(self, protocol_version: _Optional[int] = ..., weights_digest: _Optional[str] = ..., recording: _Optional[_Union[RecordingProgress, _Mapping]] = ..., live: _Optional[_Union[_verification_pb2.LivePosition, _Mapping]] = ...) -> None: ...

class RecordingProgress(_message.Message):
    __slots__ = ("resume", "is_sent", "no_speech_prob", "language_probs")
    class LanguageProbsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RESUME_FIELD_NUMBER: _ClassVar[int]
    IS_SENT_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PROB_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_PROBS_FIELD_NUMBER: _ClassVar[int]
    resume: _verification_pb2.Resume
    is_sent: bool
    no_speech_prob: float
    language_probs: _containers.ScalarMap[str, float]
    def __init__(self, resume: _Optional[_Union[_verification_pb2.Resume, _Mapping]] = ..., is_sent: bool = ..., no_speech_prob: _Optional[float] = ..., language_probs: _Optional[_Mapping[str, float]] = ...) -> None: ...
