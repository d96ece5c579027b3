"""Find when each word is spoken, from cross-attention and dynamic time warping.

Among paths of equal cost, the choice is that of openai/whisper and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from numpy.typing import NDArray

from specwhisper.model.arrays import Array, windows
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.words import split_into_words
from specwhisper.types import FRAMES_PER_TIMESTAMP, HOP_SAMPLES, Window, WordAlignment

SAMPLES_PER_POSITION = FRAMES_PER_TIMESTAMP * HOP_SAMPLES
FILTERED_TOKENS = 32  # rows in one call of the median filter, so that they fit into a CPU's cache


def begin_alignment(
    weights: Array, *, num_frames: int, median_width: int
) -> Callable[[], NDArray[np.float32]]:
    """Begin to compute how well tokens match positions; return what ends it.

    A GPU begins at once, in the order of the calling thread's work. A CPU begins when the returned function
    is called.

    Parameters
    ----------
    weights : cross-attention, heads x tokens x positions; read later, so it must not change.
    num_frames : mel frames of the window that hold audio; below 0 for a window after its end.

    Returns
    -------
    A function for any thread, which returns tokens x positions.
    """
    end = num_frames // FRAMES_PER_TIMESTAMP
    weights = weights[:, :, :end][:, :, :end]  # twice as in transformers: below 0, each cuts off some
    if is_numpy_array(weights):
        return lambda: _alignment(weights, median_width)
    from specwhisper.model.pytorch.operations import to_host  # loads torch

    return to_host(_alignment(weights, median_width))


def align_words(
    alignment: NDArray[np.float32], window: Window, tokens: Sequence[int], vocabulary: Vocabulary
) -> tuple[WordAlignment, ...]:
    """Return the words of a window with their times.

    Parameters
    ----------
    alignment : how well each token but the last matches each position: tokens - 1 x positions.
    tokens : all of the window's; the last one, mostly end-of-text, is not aligned.
    """
    ends = token_positions(alignment.astype(np.float64)).tolist()
    ends.append(ends[-1] if ends else 0)

    def sample(token: int) -> int:
        """Return where a token ends; -1 stands for the start of the window."""
        return window.start_sample + (ends[token] * SAMPLES_PER_POSITION if token >= 0 else 0)

    def aligned(start: int, length: int) -> WordAlignment:
        return WordAlignment(start, length, sample(start - 1), sample(start + length - 1))

    language = next((c for c, i in vocabulary.languages.items() if i in window.prompt), "en")
    words, end = [], 0
    for is_text, run in groupby(tokens, lambda token: token < vocabulary.end_of_text):
        start, end = end, end + len(list(run))
        text = tokens[start:end] if is_text else ()
        for split in split_into_words(vocabulary, text, language):
            word = aligned(start, split.num_tokens)
            if num_around := split.num_opening + split.num_closing:
                spoken = aligned(start + split.num_opening, split.num_tokens - num_around)
                word = replace(word, spoken=spoken)
            words.append(word)
            start += split.num_tokens
    return tuple(words)


def _alignment(weights: Array, median_width: int) -> Array:
    """Standardise weights over tokens, smooth over positions, average over heads.

    The result is tokens x positions. As in openai/whisper's ``timing.py`` and transformers'
    ``_extract_token_timestamps``.
    """
    xp = array_namespace(weights)
    if 0 in weights.shape:
        return xp.zeros(weights.shape[1:], dtype=weights.dtype, device=device(weights))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # equal weights deviate by 0
        deviation = xp.std(weights, axis=-2, keepdims=True)
        standardised = (weights - xp.mean(weights, axis=-2, keepdims=True)) / deviation
        if weights.shape[-1] > median_width // 2:
            standardised = _medians(standardised, median_width)
        return xp.mean(xp.nan_to_num(standardised), axis=0)


def _medians(values: Array, width: int) -> Array:
    """Return the median of the values around each, which are mirrored at the ends."""
    xp, half = array_namespace(values), width // 2
    first, last = values[..., 1 : half + 1], values[..., -half - 1 : -1]
    padded = xp.concat([xp.flip(first, axis=-1), values, xp.flip(last, axis=-1)], axis=-1)
    if not is_numpy_array(padded) or not np.isfinite(padded).all():  # NaN sorts last
        return xp.sort(windows(padded, width), axis=-1)[..., half]
    rows = padded.reshape(-1, padded.shape[-1])
    starts = range(0, len(rows), FILTERED_TOKENS)
    medians = [_sorted_medians(rows[i : i + FILTERED_TOKENS], width) for i in starts]
    return np.concatenate(medians).reshape(values.shape)


def _sorted_medians(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Compute the same with a bubble sort over whole rows, in a tenth of the time."""
    num_medians = rows.shape[1] - width + 1
    ranks = [rows[:, i : i + num_medians].copy() for i in range(width)]
    spare = np.empty_like(ranks[0])
    for end in range(width - 1, width // 2 - 1, -1):  # the larger half suffices
        for i in range(end):
            np.maximum(ranks[i], ranks[i + 1], out=spare)
            np.minimum(ranks[i], ranks[i + 1], out=ranks[i])
            ranks[i + 1], spare = spare, ranks[i + 1]
    return ranks[width // 2]


def token_positions(fit: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return, for each token, the first position of its stretch of the best path.

    ``fit``: how well each token fits each position, tokens x positions.
    """
    if not fit.size:
        return np.zeros(len(fit), dtype=np.int64)
    text, time = dynamic_time_warping(-fit)
    is_first = np.diff(text, prepend=-1) != 0
    return np.asarray(np.maximum(time[is_first], 0))


def dynamic_time_warping(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows and columns of the cheapest monotonic path through a matrix.

    It leads from corner to corner.

    Cells of one antidiagonal depend only on the two before it, so each is computed at once. Three of them
    are kept, and every operation writes into existing memory: this runs beside a server's forward passes,
    which wait while Python's global lock is taken.
    """
    rows, columns = cost.shape
    flat = np.ascontiguousarray(cost).ravel()
    # float32 like transformers: among paths of nearly equal cost the same one must win.
    before_last, last, total = (np.full(rows + 1, np.inf, dtype=np.float32) for _ in range(3))
    before_last[0] = 0
    is_diagonal = np.zeros((rows + columns + 1, rows + 1), dtype=bool)  # antidiagonal x row
    is_down = np.zeros_like(is_diagonal)
    least = np.empty(rows, dtype=np.float32)
    for antidiagonal in range(2, rows + columns + 1):
        start, end = max(1, antidiagonal - columns), min(rows, antidiagonal - 1) + 1
        diagonal, down, right = before_last[start - 1 : end - 1], last[start - 1 : end - 1], last[start:end]
        goes_diagonal, goes_down = is_diagonal[antidiagonal, start:end], is_down[antidiagonal, start:end]
        cells, lesser = total[start:end], least[: end - start]
        np.less(diagonal, np.minimum(down, right, out=lesser), out=goes_diagonal)
        np.less(down, np.minimum(diagonal, right, out=lesser), out=goes_down)
        np.copyto(cells, right)
        np.copyto(cells, down, where=goes_down)
        np.copyto(cells, diagonal, where=goes_diagonal)
        first = (start - 1) * columns + antidiagonal - start - 1
        costs = flat[first : first + (end - start - 1) * (columns - 1) + 1 : max(1, columns - 1)]
        np.add(costs, cells, out=cells, casting="same_kind")
        total[0] = total[end:] = np.inf  # the borders, where an older antidiagonal had cells
        before_last, last, total = last, total, before_last
    path = []
    row, column = rows, columns
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        if not row:
            column -= 1
        elif not column or is_down[row + column, row]:
            row -= 1
        elif is_diagonal[row + column, row]:
            row, column = row - 1, column - 1
        else:
            column -= 1
    backwards = np.array(path[::-1], dtype=np.int64)
    return backwards[:, 0], backwards[:, 1]
