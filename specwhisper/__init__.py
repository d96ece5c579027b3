"""Whisper transcription by speculative decoding, split over two servers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from specwhisper.extras import needs_extra

if TYPE_CHECKING:
    from specwhisper.api.gammas import GammaFigures, compare_gammas
    from specwhisper.api.speculative import SpeculativeWhisper
    from specwhisper.api.speculative_config import SpeculativeConfig
    from specwhisper.errors import RecordingsFailed, SpecWhisperError
    from specwhisper.options import CompressionRatio, DecodingOptions, Task
    from specwhisper.selection import VadOptions
    from specwhisper.speakers.diarizer import Diarizer
    from specwhisper.speakers.live_diarizer import LiveDiarizer
    from specwhisper.speakers.live_speakers import LiveSpeakers
    from specwhisper.speakers.turns import Turn
    from specwhisper.speculation.statistics import SpeculationStatistics
    from specwhisper.text.speculative import Completion, SpeculativeLM
    from specwhisper.transcription.hints.file import read_hint
    from specwhisper.transcription.subtitles import Layout
    from specwhisper.transcription.transcription import ModelInfo, Transcription
    from specwhisper.types import Segment, Word

__version__ = "0.1.0"
__all__ = [
    "Completion",
    "CompressionRatio",
    "DecodingOptions",
    "Diarizer",
    "GammaFigures",
    "Layout",
    "LiveDiarizer",
    "LiveSpeakers",
    "ModelInfo",
    "RecordingsFailed",
    "Segment",
    "SpecWhisperError",
    "SpeculationStatistics",
    "SpeculativeConfig",
    "SpeculativeLM",
    "SpeculativeWhisper",
    "Task",
    "Transcription",
    "Turn",
    "VadOptions",
    "Word",
    "compare_gammas",
    "read_hint",
]
# Loaded when first used: a client has no torch.
_HOMES = {
    "specwhisper.errors": ("RecordingsFailed", "SpecWhisperError"),
    "specwhisper.options": ("CompressionRatio", "DecodingOptions", "Task"),
    "specwhisper.selection": ("VadOptions",),
    "specwhisper.text.speculative": ("Completion", "SpeculativeLM"),
    "specwhisper.speakers.diarizer": ("Diarizer",),
    "specwhisper.speakers.live_diarizer": ("LiveDiarizer",),
    "specwhisper.speakers.live_speakers": ("LiveSpeakers",),
    "specwhisper.speakers.turns": ("Turn",),
    "specwhisper.speculation.statistics": ("SpeculationStatistics",),
    "specwhisper.transcription.hints.file": ("read_hint",),
    "specwhisper.transcription.subtitles": ("Layout",),
    "specwhisper.transcription.transcription": ("ModelInfo", "Transcription"),
    "specwhisper.types": ("Segment", "Word"),
    "specwhisper.api.gammas": ("GammaFigures", "compare_gammas"),
    "specwhisper.api.speculative": ("SpeculativeWhisper",),
    "specwhisper.api.speculative_config": ("SpeculativeConfig",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'specwhisper' has no attribute '{name}'")
    with needs_extra(name, "draft" if name == "SpeculativeWhisper" else "server"):
        home = import_module(_HOME_OF[name])
    return getattr(home, name)
