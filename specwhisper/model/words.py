"""Which tokens make a word, and when it is spoken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import LANGUAGES, _combine_tokens_into_words

from specwhisper.model.transfer import to_host
from specwhisper.transcription.alignment import token_positions
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, SAMPLE_RATE, Window, WordAlignment

SAMPLES_PER_POSITION = FRAMES_PER_TIMESTAMP * HOP_SAMPLES
FILTERED_TOKENS = 32  # at once: as many rows as a cache holds


def begin_fit(weights: Tensor, *, num_frames: int, median_width: int) -> Callable[[], Tensor]:
    """Begin to filter what heads look at; return what ends it, on any thread, and gives tokens x positions.

    A GPU begins at once, in the order of the calling thread's work, and is only waited for later. A CPU has
    nobody else to do it: it begins when it is asked for the end.

    Parameters
    ----------
    weights : heads x tokens x positions; read later, so it must not change.
    num_frames : mel frames of the window that hold audio.
    """
    heard = weights[:, :, : num_frames // FRAMES_PER_TIMESTAMP]
    if heard.device.type == "cpu":
        return partial(_fit, heard, median_width)
    return to_host(_fit(heard, median_width))


def align_words(
    fit: Tensor,
    window: Window,
    tokens: Sequence[int],
    tokenizer: WhisperTokenizer,
    vocabulary: Vocabulary,
) -> tuple[WordAlignment, ...]:
    """Find the words of a window.

    Parameters
    ----------
    fit : how well each token but the last fits each position: tokens - 1 x positions.
    tokens : of the whole window; the last one, mostly end-of-text, is not aligned.
    """
    ends = token_positions(fit.double().numpy()).tolist()
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


def most_attended_ms(fit: Tensor) -> list[float]:
    """Return the position that fits each row best (rows x positions), in milliseconds of the window."""
    ms_per_position = SAMPLES_PER_POSITION * 1000 / SAMPLE_RATE
    return [position * ms_per_position for position in fit.argmax(dim=-1).tolist()]


@torch.inference_mode()
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
        standing_out = _medians(padded, median_width)
    return standing_out.nan_to_num().mean(dim=0)


def _medians(values: Tensor, width: int) -> Tensor:
    """Return the median of each ``width`` values side by side, ... x n to ... x (n - width + 1)."""
    if values.device.type != "cpu" or not values.isfinite().all():  # NaN sorts last
        return values.unfold(-1, width, 1).sort()[0][..., width // 2]
    rows = values.flatten(0, -2).numpy()
    starts = range(0, len(rows), FILTERED_TOKENS)
    medians = np.concatenate([_sorted_medians(rows[i : i + FILTERED_TOKENS], width) for i in starts])
    return torch.from_numpy(medians).view(*values.shape[:-1], -1)


def _sorted_medians(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Do so by sorting all windows side by side: bubbles of minima and maxima, a tenth of a sort's time."""
    num_medians = rows.shape[1] - width + 1
    ranks = [rows[:, i : i + num_medians].copy() for i in range(width)]
    spare = np.empty_like(ranks[0])
    for end in range(width - 1, width // 2 - 1, -1):  # the larger half suffices
        for i in range(end):
            np.maximum(ranks[i], ranks[i + 1], out=spare)
            np.minimum(ranks[i], ranks[i + 1], out=ranks[i])
            ranks[i + 1], spare = spare, ranks[i + 1]
    return ranks[width // 2]


def _runs(tokens: Sequence[int], end_of_text: int) -> Iterator[tuple[int, int]]:
    """Give start and end of each stretch of text between times."""
    start = None
    for i, token in enumerate([*tokens, end_of_text]):
        if token < end_of_text and start is None:
            start = i
        elif token >= end_of_text and start is not None:
            yield start, i
            start = None
