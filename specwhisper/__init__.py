"""Whisper transcription by speculative decoding, split between a draft and a target server."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specwhisper.api.results import Stats, Transcription
    from specwhisper.api.speculative import SpeculativeWhisper
    from specwhisper.api.speculative_config import SpeculativeConfig
    from specwhisper.errors import RecordingsFailed, SpecWhisperError
    from specwhisper.options import Acceptance, CompressionRatio, DecodingOptions, Task
    from specwhisper.text.speculative import Completion, SpeculativeLM
    from specwhisper.transcription.formats import to_srt, to_tsv, to_txt, to_verbose_json, to_vtt
    from specwhisper.transcription.subtitles import Layout
    from specwhisper.types import Segment, Word

__version__ = "0.1.0"
__all__ = [
    "Acceptance",
    "Completion",
    "CompressionRatio",
    "DecodingOptions",
    "Layout",
    "RecordingsFailed",
    "Segment",
    "SpecWhisperError",
    "SpeculativeConfig",
    "SpeculativeLM",
    "SpeculativeWhisper",
    "Stats",
    "Task",
    "Transcription",
    "Word",
    "to_srt",
    "to_tsv",
    "to_txt",
    "to_verbose_json",
    "to_vtt",
]
# Loaded when first used: a client has no torch.
_HOMES = {
    "specwhisper.errors": ("RecordingsFailed", "SpecWhisperError"),
    "specwhisper.options": ("Acceptance", "CompressionRatio", "DecodingOptions", "Task"),
    "specwhisper.text.speculative": ("Completion", "SpeculativeLM"),
    "specwhisper.transcription.formats": ("to_srt", "to_tsv", "to_txt", "to_verbose_json", "to_vtt"),
    "specwhisper.transcription.subtitles": ("Layout",),
    "specwhisper.types": ("Segment", "Word"),
    "specwhisper.api.results": ("Stats", "Transcription"),
    "specwhisper.api.speculative": ("SpeculativeWhisper",),
    "specwhisper.api.speculative_config": ("SpeculativeConfig",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'specwhisper' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)
