"""Whisper transcription by speculative decoding, split over two servers."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from specwhisper.extras import needs_extra, offers

if TYPE_CHECKING:
    from specwhisper.api.speculative import SpeculativeWhisper as SpeculativeWhisper
    from specwhisper.api.speculative_config import GammaFigures as GammaFigures
    from specwhisper.api.speculative_config import SpeculativeConfig as SpeculativeConfig
    from specwhisper.api.speculative_config import compare_gammas as compare_gammas
    from specwhisper.errors import RecordingsFailed as RecordingsFailed
    from specwhisper.errors import SpecWhisperError as SpecWhisperError
    from specwhisper.options import CompressionRatio as CompressionRatio
    from specwhisper.options import DecodingOptions as DecodingOptions
    from specwhisper.options import Task as Task
    from specwhisper.selection import VadOptions as VadOptions
    from specwhisper.speculation.statistics import SpeculationStatistics as SpeculationStatistics
    from specwhisper.transcription.formats import Layout as Layout
    from specwhisper.transcription.hint_files import read_hint as read_hint
    from specwhisper.transcription.speakers import Turn as Turn
    from specwhisper.transcription.transcription import ModelInfo as ModelInfo
    from specwhisper.transcription.transcription import Transcription as Transcription
    from specwhisper.types import Segment as Segment
    from specwhisper.types import Word as Word

__version__ = "0.1.0"
# gRPC reads it when it is imported. Its own lines would stand before our sentence about the same error.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Loaded when first used: a client has no torch.
_HOMES = {
    "specwhisper.errors": ("RecordingsFailed", "SpecWhisperError"),
    "specwhisper.options": ("CompressionRatio", "DecodingOptions", "Task"),
    "specwhisper.selection": ("VadOptions",),
    "specwhisper.speculation.statistics": ("SpeculationStatistics",),
    "specwhisper.transcription.hint_files": ("read_hint",),
    "specwhisper.transcription.speakers": ("Turn",),
    "specwhisper.transcription.formats": ("Layout",),
    "specwhisper.transcription.transcription": ("ModelInfo", "Transcription"),
    "specwhisper.types": ("Segment", "Word"),
    "specwhisper.api.speculative": ("SpeculativeWhisper",),
    "specwhisper.api.speculative_config": ("GammaFigures", "SpeculativeConfig", "compare_gammas"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [*_HOME_OF, *offers("exports")]


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
