"""The client: send audio to a draft server and receive its text.

async with TranscriptionClient("127.0.0.1:50051") as client:
    print(await client.transcribe_file("talk.mp3"))

Decoding options, segments and words are exported from ``specwhisper``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specwhisper.errors import IdleClient as IdleClient
    from specwhisper.errors import InvalidAudio as InvalidAudio
    from specwhisper.errors import InvalidRequest as InvalidRequest
    from specwhisper.errors import MessageTooLarge as MessageTooLarge
    from specwhisper.errors import PairMismatch as PairMismatch
    from specwhisper.errors import ServerDraining as ServerDraining
    from specwhisper.errors import ServerFull as ServerFull
    from specwhisper.errors import SpecWhisperError as SpecWhisperError
    from specwhisper.errors import TargetUnavailable as TargetUnavailable
    from specwhisper.errors import Unauthenticated as Unauthenticated
    from specwhisper.errors import UnsafeBind as UnsafeBind
    from specwhisper.errors import UnsupportedOption as UnsupportedOption
    from specwhisper.live import EndpointingOptions as EndpointingOptions
    from specwhisper.live import LiveOptions as LiveOptions
    from specwhisper.rpc.channels import Credentials as Credentials
    from specwhisper.rpc.tls import ClientTls as ClientTls
    from specwhisper.transcription.transcription import ModelInfo as ModelInfo
    from specwhisper.transcription.transcription import Transcription as Transcription
    from specwhisper.types import Mode as Mode
    from specwhisper.types import VoiceEvent as VoiceEvent
    from specwhisper_client.api import TranscriptionClient as TranscriptionClient
    from specwhisper_client.blocking import listen as listen
    from specwhisper_client.file_transcription import FileTranscription as FileTranscription
    from specwhisper_client.live_transcription import LiveTranscription as LiveTranscription
    from specwhisper_client.live_transcription import with_speakers as with_speakers
    from specwhisper_client.servers import DEFAULT_SERVER as DEFAULT_SERVER
    from specwhisper_client.servers import Servers as Servers
    from specwhisper_client.sources import microphone as microphone
    from specwhisper_client.streaming import StreamingClient as StreamingClient
    from specwhisper_client.updates import ResumePoint as ResumePoint
    from specwhisper_client.updates import ServerInfo as ServerInfo
    from specwhisper_client.updates import Update as Update

# Imported on first use, as in `specwhisper`.
_MODULES = {
    "specwhisper.errors": (
        "IdleClient",
        "InvalidAudio",
        "InvalidRequest",
        "MessageTooLarge",
        "PairMismatch",
        "ServerDraining",
        "ServerFull",
        "SpecWhisperError",
        "TargetUnavailable",
        "Unauthenticated",
        "UnsafeBind",
        "UnsupportedOption",
    ),
    "specwhisper.live": ("EndpointingOptions", "LiveOptions"),
    "specwhisper.rpc.channels": ("Credentials",),
    "specwhisper.rpc.tls": ("ClientTls",),
    "specwhisper.transcription.transcription": ("ModelInfo", "Transcription"),
    "specwhisper.types": ("Mode", "VoiceEvent"),
    "specwhisper_client.api": ("TranscriptionClient",),
    "specwhisper_client.blocking": ("listen",),
    "specwhisper_client.file_transcription": ("FileTranscription",),
    "specwhisper_client.live_transcription": ("LiveTranscription", "with_speakers"),
    "specwhisper_client.updates": ("ResumePoint", "ServerInfo", "Update"),
    "specwhisper_client.servers": ("DEFAULT_SERVER", "Servers"),
    "specwhisper_client.sources": ("microphone",),
    "specwhisper_client.streaming": ("StreamingClient",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'specwhisper_client' has no attribute '{name}'")
    return getattr(import_module(_MODULE_OF[name]), name)
