"""Which tokens make a word, and when it is spoken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import LANGUAGES, _combine_tokens_into_words

from specwhisper.transcription.alignment import token_positions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, SAMPLE_RATE, Window, WordAlignment

SAMPLES_PER_POSITION = FRAMES_PER_TIMESTAMP * HOP_SAMPLES


def align_words(
    weights: Tensor,
    window: Window,
    tokens: Sequence[int],
    tokenizer: WhisperTokenizer,
    vocabulary: Vocabulary,
    *,
    num_frames: int,
    median_width: int,
) -> tuple[WordAlignment, ...]:
    """Find the words of a window.

    Parameters
    ----------
    weights : where the alignment heads look behind each token but the last: heads x tokens - 1 x positions.
    tokens : of the whole window; the last one, mostly end-of-text, is not looked behind.
    num_frames : mel frames of the window that hold audio.
    """
    heard = weights[:, :, : num_frames // FRAMES_PER_TIMESTAMP]
    ends = token_positions(_fit(heard, median_width).double().numpy()).tolist()
    ends.append(ends[-1] if ends else 0)

    def sample(token: int) -> int:
        """Where a token ends; before the first one, the window begins."""
        return window.start_sample + (ends[token] * SAMPLES_PER_POSITION if token >= 0 else 0)

    language = next((c for c, i in vocabulary.languages.items() if i in window.prompt), "en")
    words = []
    for start, end in _runs(tokens, vocabulary.end_of_text):
        _, groups, _ = _combine_tokens_into_words(
            tokenizer, list(tokens[start:end]), LANGUAGES.get(language, language)
        )
        for group in groups:
            words.append(WordAlignment(start, len(group), sample(start - 1), sample(start + len(group) - 1)))
            start += len(group)
    return tuple(words)


def most_attended_ms(weights: Tensor, *, num_frames: int, median_width: int) -> list[float]:
    """Tell where the heads look most from each row, in milliseconds of the window.

    Parameters
    ----------
    weights : heads x rows x positions.
    num_frames : mel frames of the window that hold audio.
    """
    heard = weights[:, :, : max(1, num_frames // FRAMES_PER_TIMESTAMP)]
    ms_per_position = SAMPLES_PER_POSITION * 1000 / SAMPLE_RATE
    return [position * ms_per_position for position in _fit(heard, median_width).argmax(dim=-1).tolist()]


def _fit(weights: Tensor, median_width: int) -> Tensor:
    """Say how well each token fits each position: what stands out there, smoothed, the mean over heads.

    As in openai/whisper's ``timing.py`` and transformers' ``_extract_token_timestamps``.
    """
    if 0 in weights.shape:
        return weights.new_zeros(weights.shape[1:])
    deviation = weights.std(dim=-2, keepdim=True, unbiased=False)
    standing_out = (weights - weights.mean(dim=-2, keepdim=True)) / deviation
    half = median_width // 2
    if weights.shape[-1] > half:
        padded = torch.nn.functional.pad(standing_out, (half, half, 0, 0), mode="reflect")
        standing_out = padded.unfold(-1, median_width, 1).sort()[0][..., half]
    return standing_out.nan_to_num().mean(dim=0)


def _runs(tokens: Sequence[int], end_of_text: int) -> Iterator[tuple[int, int]]:
    """Give start and end of each stretch of text between times."""
    start = None
    for i, token in enumerate([*tokens, end_of_text]):
        if token < end_of_text and start is None:
            start = i
        elif token >= end_of_text and start is not None:
            yield start, i
            start = None
