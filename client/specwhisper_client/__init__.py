"""The client: send audio to a draft server and receive its text.

async with TranscriptionClient("127.0.0.1:50051") as client:
    print(await client.transcribe_file("talk.mp3"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specwhisper.transcription.transcription import ModelInfo, Transcription
    from specwhisper_client.api import DEFAULT_SERVER, TranscriptionClient
    from specwhisper_client.blocking import listen
    from specwhisper_client.file_transcription import FileTranscription
    from specwhisper_client.live_transcription import LiveTranscription
    from specwhisper_client.replies import ServerInfo, Update
    from specwhisper_client.streaming import LIVE_DECODING, StreamingClient

__all__ = [
    "DEFAULT_SERVER",
    "LIVE_DECODING",
    "FileTranscription",
    "LiveTranscription",
    "ModelInfo",
    "ServerInfo",
    "StreamingClient",
    "Transcription",
    "TranscriptionClient",
    "Update",
    "listen",
]
# Imported on first use, as in `specwhisper`.
_MODULES = {
    "specwhisper.transcription.transcription": ("ModelInfo", "Transcription"),
    "specwhisper_client.api": ("DEFAULT_SERVER", "TranscriptionClient"),
    "specwhisper_client.blocking": ("listen",),
    "specwhisper_client.file_transcription": ("FileTranscription",),
    "specwhisper_client.live_transcription": ("LiveTranscription",),
    "specwhisper_client.streaming": ("LIVE_DECODING", "StreamingClient"),
    "specwhisper_client.replies": ("ServerInfo", "Update"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'specwhisper_client' has no attribute '{name}'")
    return getattr(import_module(_MODULE_OF[name]), name)
