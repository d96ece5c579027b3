"""Whisper transcription by speculative decoding, split over two servers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from specwhisper.extras import needs_extra, offers

if TYPE_CHECKING:
    from specwhisper.api.gammas import GammaFigures, compare_gammas
    from specwhisper.api.speculative import SpeculativeWhisper
    from specwhisper.api.speculative_config import SpeculativeConfig
    from specwhisper.errors import RecordingsFailed, SpecWhisperError
    from specwhisper.options import CompressionRatio, DecodingOptions, Task
    from specwhisper.selection import VadOptions
    from specwhisper.speculation.statistics import SpeculationStatistics
    from specwhisper.transcription.hints.file import read_hint
    from specwhisper.transcription.speakers import Turn
    from specwhisper.transcription.subtitles import Layout
    from specwhisper.transcription.transcription import ModelInfo, Transcription
    from specwhisper.types import Segment, Word

__version__ = "0.1.0"
__all__ = [
    "CompressionRatio",
    "DecodingOptions",
    "GammaFigures",
    "Layout",
    "ModelInfo",
    "RecordingsFailed",
    "Segment",
    "SpecWhisperError",
    "SpeculationStatistics",
    "SpeculativeConfig",
    "SpeculativeWhisper",
    "Task",
    "Transcription",
    "Turn",
    "VadOptions",
    "Word",
    "compare_gammas",
    "read_hint",
]
__all__ += offers("exports")
# Loaded when first used: a client has no torch.
_HOMES = {
    "specwhisper.errors": ("RecordingsFailed", "SpecWhisperError"),
    "specwhisper.options": ("CompressionRatio", "DecodingOptions", "Task"),
    "specwhisper.selection": ("VadOptions",),
    "specwhisper.speculation.statistics": ("SpeculationStatistics",),
    "specwhisper.transcription.hints.file": ("read_hint",),
    "specwhisper.transcription.speakers": ("Turn",),
    "specwhisper.transcription.subtitles": ("Layout",),
    "specwhisper.transcription.transcription": ("ModelInfo", "Transcription"),
    "specwhisper.types": ("Segment", "Word"),
    "specwhisper.api.gammas": ("GammaFigures", "compare_gammas"),
    "specwhisper.api.speculative": ("SpeculativeWhisper",),
    "specwhisper.api.speculative_config": ("SpeculativeConfig",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        with needs_extra(name, "draft" if name == "SpeculativeWhisper" else "server"):
            return getattr(import_module(_HOME_OF[name]), name)
    if (offer := offers("exports").get(name)) is not None:
        with needs_extra(name, "server"):
            return offer.load()
    raise AttributeError(f"module 'specwhisper' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
