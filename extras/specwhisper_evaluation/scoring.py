"""Compute error rates after Whisper's public normaliser, as papers report them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

# Written without spaces between words: each letter counts as one, as in Whisper's paper.
WITHOUT_SPACES = frozenset(("zh", "ja", "th", "lo", "my", "yue"))


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Errors per word and per character of the references."""

    wer: float
    cer: float


def error_rates(references: Sequence[str], hypotheses: Sequence[str], language: str) -> ErrorRates:
    """Compare texts; references that are empty once normalised are left out."""
    normalise = _normaliser(language)
    pairs = [(normalise(r), normalise(h)) for r, h in zip(references, hypotheses, strict=True)]
    spoken = [(r, h) for r, h in pairs if r.strip()]
    if not spoken:
        return ErrorRates(0.0, 0.0)
    truth, texts = [r for r, _ in spoken], [h for _, h in spoken]
    return ErrorRates(float(jiwer.wer(truth, texts)), float(jiwer.cer(truth, texts)))


@cache
def _normaliser(language: str) -> Callable[[str], str]:
    if language == "en":
        normalise: Callable[[str], str] = EnglishTextNormalizer()  # reads a file
    else:
        normalise = BasicTextNormalizer(split_letters=language in WITHOUT_SPACES)
    return normalise
