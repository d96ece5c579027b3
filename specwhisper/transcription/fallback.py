"""Decide whether a window is kept, decoded again or skipped: openai/whisper's rules, and transformers'."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from specwhisper.options import CompressionRatio, DecodingOptions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Outcome


def judge(
    tokens: Sequence[int],
    log_probs: Sequence[float],
    no_speech_prob: float | None,
    options: DecodingOptions,
    vocabulary: Vocabulary,
) -> Outcome:
    """Return the outcome of a window by its tokens, end-of-text included.

    ``RETRIED``: it should be decoded again, if a temperature is left.
    """
    has_failed = False
    if options.compression_ratio_threshold is not None:
        if options.compression_ratio_of is CompressionRatio.TOKENS:
            ratio = token_compression_ratio(tokens, len(vocabulary))
        else:
            ratio = text_compression_ratio(vocabulary.decode(tokens))
        has_failed = ratio > options.compression_ratio_threshold
    is_unsure = True
    if options.logprob_threshold is not None:
        is_unsure = avg_logprob(log_probs) < options.logprob_threshold
        has_failed = has_failed or is_unsure
    if options.no_speech_threshold is not None and is_unsure:
        if no_speech_prob is not None and no_speech_prob > options.no_speech_threshold:
            return Outcome.SKIPPED
    return Outcome.RETRIED if has_failed else Outcome.KEPT


def avg_logprob(log_probs: Sequence[float]) -> float:
    """Return the mean log-probability of a window's tokens; 0 without tokens."""
    return math.fsum(log_probs) / len(log_probs) if log_probs else 0.0


def text_compression_ratio(text: str) -> float:
    """Return a text's compression ratio by zlib (openai/whisper); 0 without text."""
    raw = text.strip().encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0


def token_compression_ratio(tokens: Sequence[int], vocabulary_size: int) -> float:
    """Return the compression ratio of token ids, in transformers' bytes."""
    width = int(math.log2(vocabulary_size) / 8) + 1
    raw = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0
