"""What the Python API returns of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Segment, Word


@dataclass(frozen=True, slots=True)
class Stats:
    """How the draft did; ``counts`` has everything that was counted."""

    counts: SpeculationStatistics

    @property
    def overall_acceptance_rate(self) -> float:
        """Accepted per verified draft token."""
        return self.counts.acceptance_rate

    @property
    def avg_tokens_per_iteration(self) -> float:
        """Tokens written per forward pass of the target."""
        return self.counts.tokens_per_forward

    @property
    def acceptance_histogram(self) -> list[int]:
        """Entry n counts the passes that kept n draft tokens."""
        return self.counts.acceptance_histogram


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcribed recording; it prints as its text.

    Attributes
    ----------
    language_probs : by code, where the language was detected.
    is_lossy : whether the text may differ from the target's own, because an ``acceptance_threshold`` was
        asked for. Under classical acceptance it is drawn from the target's own distribution.
    stats : how the draft did; ``None`` where ``return_stats=False`` was asked.
    """

    segments: tuple[Segment, ...]
    language: str
    duration_s: float
    language_probs: Mapping[str, float] = field(default_factory=dict)
    is_lossy: bool = False
    stats: Stats | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def words(self) -> tuple[Word, ...]:
        """The words, with ``word_timestamps=True``."""
        return tuple(word for segment in self.segments for word in segment.words)

    def __str__(self) -> str:
        return self.text
