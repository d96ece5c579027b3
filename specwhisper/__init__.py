"""Whisper transcription by speculative decoding, split between a draft and a target server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specwhisper.options import Acceptance, CompressionRatio, DecodingOptions, Task
    from specwhisper.text.speculative import SpeculativeLM
    from specwhisper.whisper.speculative import SpeculativeConfig, SpeculativeWhisper, Transcription

__version__ = "0.1.0"
__all__ = [
    "Acceptance",
    "CompressionRatio",
    "DecodingOptions",
    "SpeculativeConfig",
    "SpeculativeLM",
    "SpeculativeWhisper",
    "Task",
    "Transcription",
]
# Loaded when first used: a client has no torch.
_HOMES = {
    "specwhisper.options": ("Acceptance", "CompressionRatio", "DecodingOptions", "Task"),
    "specwhisper.text.speculative": ("SpeculativeLM",),
    "specwhisper.whisper.speculative": ("SpeculativeConfig", "SpeculativeWhisper", "Transcription"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'specwhisper' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)
