"""The client: send audio to a draft server and receive its text.

async with TranscriptionClient("127.0.0.1:50051") as client:
    print(await client.transcribe_file("talk.mp3"))

Decoding options, segments and words are exported from ``specwhisper``.
"""

from specwhisper.errors import (
    IdleClient,
    InvalidAudio,
    InvalidRequest,
    MessageTooLarge,
    PairMismatch,
    ServerDraining,
    ServerFull,
    SpecWhisperError,
    TargetUnavailable,
    Unauthenticated,
    UnsafeBind,
    UnsupportedOption,
)
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.rpc.channels import Credentials
from specwhisper.rpc.tls import ClientTls
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import Mode, VoiceEvent
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.blocking import listen
from specwhisper_client.file_transcription import FileTranscription
from specwhisper_client.live_transcription import LiveTranscription, with_speakers
from specwhisper_client.servers import DEFAULT_SERVER, Servers
from specwhisper_client.sources import microphone
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import ResumePoint, ServerInfo, Update

__all__ = [
    "DEFAULT_SERVER",
    "ClientTls",
    "Credentials",
    "EndpointingOptions",
    "FileTranscription",
    "IdleClient",
    "InvalidAudio",
    "InvalidRequest",
    "LiveOptions",
    "LiveTranscription",
    "MessageTooLarge",
    "Mode",
    "ModelInfo",
    "PairMismatch",
    "ResumePoint",
    "ServerDraining",
    "ServerFull",
    "ServerInfo",
    "Servers",
    "SpecWhisperError",
    "StreamingClient",
    "TargetUnavailable",
    "Transcription",
    "TranscriptionClient",
    "Unauthenticated",
    "UnsafeBind",
    "UnsupportedOption",
    "Update",
    "VoiceEvent",
    "listen",
    "microphone",
    "with_speakers",
]
