"""Token times equal those of transformers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

from specwhisper.model.word_times import (
    _medians,
    begin_alignment,
    dynamic_time_warping,
    token_positions,
)
from tests.unit.model.libraries import LIBRARIES, OfLibrary


def weights(seed: int, heads: int, tokens: int, positions: int) -> torch.Tensor:
    scores = torch.randn(heads, tokens, positions, generator=torch.Generator().manual_seed(seed))
    return (3 * scores).softmax(dim=-1)


def alignment(attention: torch.Tensor, of: OfLibrary, median_width: int = 7) -> np.ndarray:
    num_frames = 2 * attention.shape[-1]
    return begin_alignment(of(attention), num_frames=num_frames, median_width=median_width)()


def positions_of(attention: torch.Tensor, of: OfLibrary, median_width: int = 7) -> list[int]:
    return token_positions(alignment(attention, of, median_width).astype(np.float64)).tolist()


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 30), st.booleans())
def test_the_path_equals_transformers(seed: int, rows: int, columns: int, has_ties: bool):
    random = np.random.default_rng(seed)
    cost = random.integers(0, 3, (rows, columns)) if has_ties else random.normal(size=(rows, columns))
    expected = _dynamic_time_warping(cost.astype(np.float64))
    assert all(map(np.array_equal, dynamic_time_warping(cost.astype(np.float64)), expected))


@LIBRARIES
@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    heads=st.integers(1, 3),
    tokens=st.integers(3, 9),  # two become 1 and -1, so that every path is a tie up to rounding
    positions=st.integers(1, 40),
)
def test_positions_equal_transformers(of, seed: int, heads: int, tokens: int, positions: int):
    attention = weights(seed, heads, tokens, positions)
    normal = (attention - attention.mean(-2, keepdim=True)) / attention.std(-2, keepdim=True, unbiased=False)
    if not normal.isfinite().all():  # one position: transformers divides by zero
        return
    matrix = _median_filter(normal[None], 7).mean(dim=1)[0]
    text, time = _dynamic_time_warping(-matrix.double().numpy())
    jumps = np.pad(np.diff(text), (1, 0), constant_values=1).astype(bool)
    assert positions_of(attention, of) == time[jumps].tolist()


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    width=st.sampled_from([1, 3, 5, 7, 9]),
    tokens=st.integers(1, 70),
    kind=st.sampled_from("-rin"),
)
def test_medians_equal_those_of_a_gpu(seed: int, width: int, tokens: int, kind: str):
    values = torch.randn(2, tokens, 40, generator=torch.Generator().manual_seed(seed))
    if kind == "r":
        values = values.round()  # many values are equal
    elif kind != "-":
        values[values > 1] = {"i": torch.inf, "n": torch.nan}[kind]
    assert np.array_equal(_medians(values.numpy(), width), _medians(values, width), equal_nan=True)


@LIBRARIES
@pytest.mark.parametrize(("tokens", "positions"), [(0, 10), (3, 0), (1, 10), (3, 1)])
def test_the_smallest_windows_have_positions(of, tokens: int, positions: int):
    assert positions_of(weights(0, 2, tokens, positions), of) == [0] * tokens


@LIBRARIES
@pytest.mark.parametrize(("num_frames", "positions"), [(0, 0), (-1, 38), (-2, 38), (-20, 20), (-44, 0)])
def test_a_window_after_the_audio_is_cut_as_transformers_cuts_it(of, num_frames: int, positions: int):
    """Twice: before the filter, and in it."""
    attention = weights(0, 2, 5, 40)
    cut = begin_alignment(of(attention), num_frames=num_frames, median_width=3)()
    expected = begin_alignment(of(attention[..., :positions]), num_frames=80, median_width=3)()
    assert np.array_equal(cut, expected)
