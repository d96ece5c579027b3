"""Sampling by noise has the softmax's distribution on both servers; greedy choices read the device once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import TopKLogitsWarper, TopPLogitsWarper

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.model.choosing import Row, choose
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch import decoder
from specwhisper.model.sampling import (
    GOLDEN,
    MASK,
    Sampling,
    filter_top_k_top_p,
    gumbel,
    mix,
    position_key,
    random_bits,
    window_key,
)
from specwhisper.options import MAX_TEMPERATURE, MIN_TEMPERATURE
from tests.nightly import examples
from tests.unit.model.libraries import LIBRARIES, TORCH

SIZE = 12
NUM_DRAWN = examples(1000, 6000)
ALMOST_NEVER = 1e-4  # of a true hypothesis; seeds are fixed, so a test passes always or never


def logits(seed: int, size: int = SIZE) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 1.5


def counts(tokens: list[int], size: int = SIZE) -> np.ndarray:
    return np.bincount(tokens, minlength=size)


def assert_distributed(tokens: list[int], probs: torch.Tensor) -> None:
    expected = (probs.double() / probs.double().sum()).numpy() * len(tokens)
    observed = counts(tokens, len(probs))
    assert not observed[expected == 0].any()
    is_possible = expected > 0
    assert chisquare(observed[is_possible], expected[is_possible]).pvalue > ALMOST_NEVER


def test_noise_has_the_bits_of_the_published_generator_in_both_libraries():
    """SplitMix64; the numbers are printed by its reference implementation."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [mix((1234567 + i * GOLDEN) & MASK) for i in (1, 2, 3)] == published
    keys = [0, 1234567, 2**63, MASK]
    expected = [[mix((key + i * GOLDEN) & MASK) for i in range(1, 41)] for key in keys]
    for place in (None, TORCH):
        bits = np.asarray(random_bits(keys, 40, place))
        assert bits.view(np.uint64).tolist() == expected
    assert np.allclose(gumbel(keys, 40), gumbel(keys, 40, TORCH), rtol=1e-6, atol=0)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 15), st.integers(0, 447))
def test_every_part_of_a_key_matters(seed: int, start: int, attempt: int, position: int):
    key = position_key(window_key(seed, start, attempt), position)
    others = {
        position_key(window_key(seed ^ 1, start, attempt), position),
        position_key(window_key(seed, start + 160, attempt), position),
        position_key(window_key(seed, start, attempt + 1), position),
        position_key(window_key(seed, start, attempt), position + 1),
    }
    assert len(others | {key}) == 5


@LIBRARIES
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_the_draw_is_distributed_as_the_softmax(of, temperature: float):
    made = logits(1)
    rows = [row(position, temperature) for position in range(NUM_DRAWN)]
    drawn = choose(rows, of(made.repeat(len(rows), 1)))
    assert_distributed([s.tokens[0] for s in drawn], (made / temperature).softmax(dim=-1))


def row(position: int, temperature: float = 1.0, candidates: list[int] | None = None, **kwargs) -> Row:
    sampling = Sampling(temperature, seed=5, start_sample=0)
    candidates = candidates or []
    return Row(0, [0, *candidates], len(candidates), [0] * position, False, sampling=sampling, **kwargs)


@LIBRARIES
@given(
    seed=st.integers(0, 1000),
    top_k=st.integers(0, SIZE + 2),
    top_p=st.floats(0.05, 1.0),
    temperature=st.floats(0.2, 2.0),
)
def test_top_k_and_top_p_equal_transformers(of, seed: int, top_k: int, top_p: float, temperature: float):
    made = logits(seed)
    sampling = Sampling(temperature, 0, 0, top_k=top_k, top_p=top_p)
    expected = (made / temperature)[None]
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    ours = of(made)
    filter_top_k_top_p(ours, sampling)
    assert np.array_equal(np.isinf(np.asarray(ours)), expected[0].isinf())


@LIBRARIES
@pytest.mark.parametrize(
    ("values", "top_p", "kept"),
    [([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, -0.0], 0.4, [1, 3]), ([0.0] * 100, 0.055, [0, 1, 2, 3, 4, 5])],
)
def test_top_p_keeps_the_lowest_of_equal_ids(of, values, top_p, kept):
    ours = of(torch.tensor(values))
    filter_top_k_top_p(ours, Sampling(1.0, 0, 0, top_p=top_p))
    assert np.flatnonzero(np.isfinite(np.asarray(ours))).tolist() == kept


@LIBRARIES
def test_a_threshold_keeps_likely_candidates(of):
    made = torch.tensor([0.5, 0.3, 0.2]).log()
    kept = [
        choose([Row(0, [0, candidate], 1, [], False, acceptance_threshold=0.25)], of(made.repeat(2, 1)))[0]
        for candidate in range(3)
    ]
    assert [scores.tokens[0] for scores in kept] == [0, 1, 0]
    assert kept[1].log_probs[0] == pytest.approx(np.log(0.3))


@LIBRARIES
@pytest.mark.parametrize("temperature", [MIN_TEMPERATURE, MAX_TEMPERATURE])
def test_margins_are_numbers_at_every_temperature(of, temperature: float):
    allowed = 50 * logits(1)
    allowed[::2] = -torch.inf  # as the rules set forbidden tokens
    row = Row(0, [1], 0, (), timestamps=False, sampling=Sampling(temperature, 0, 0, 0))
    scores = choose([row], of(allowed[None]))[0]
    assert np.isfinite([*scores.margins, *scores.log_probs]).all() and scores.tokens[0] % 2


_, CHECKPOINT = build_checkpoint(Shape(d_model=32, max_target_positions=32))
ROWS = [Row(0, [5, 6, 7], 2, (), timestamps=True), Row(1, [8], 0, (9,), timestamps=False)]


@LIBRARIES
def test_the_lowest_of_equal_ids_wins(of):
    logits = torch.zeros(4, 51_866)
    logits[0, [9, 8, 51_865]] = 1.0
    logits[1, 5] = -1.0
    first, second = choose(ROWS, of(logits))
    assert first.tokens + second.tokens == [8, 0, 0, 0]
    assert first.margins + second.margins == [0.0] * 4


@pytest.fixture
def transfers(monkeypatch) -> Counter:
    """Return a counter of reads from the device."""
    counted = Counter()
    for name in ("tolist", "item", "__float__", "__int__", "__bool__"):
        method = getattr(torch.Tensor, name)

        def counting(self, *args, _method=method, **kwargs):
            counted["reads"] += 1
            return _method(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, counting)
    return counted


def test_a_greedy_forward_pass_reads_the_device_once(transfers, monkeypatch):
    monkeypatch.setattr(decoder, "logits_device", lambda device: device)  # as on a GPU
    model = WhisperModel(CHECKPOINT, 2, has_static_shapes=True)
    model.score(ROWS)
    assert transfers["reads"] == 1
    model.score([replace(ROWS[1], probe=0)])
    assert transfers["reads"] == 3  # the probe's result is read too


@LIBRARIES
def test_results_belong_to_their_rows(of):
    logits = torch.randn(4, 51_866, generator=torch.Generator().manual_seed(3))
    logits[2, -1] = 9.0
    first, second = choose(ROWS, of(logits))
    best = logits.topk(2, dim=-1)
    assert first.tokens + second.tokens == best.indices[:, 0].tolist()
    assert first.tokens[2] == 51_865
    expected = logits.log_softmax(dim=-1).gather(1, best.indices[:, :1]).flatten().tolist()
    assert first.log_probs + second.log_probs == pytest.approx(expected, abs=1e-5)
    margins = (best.values[:, 0] - best.values[:, 1]).tolist()
    assert first.margins + second.margins == pytest.approx(margins, abs=1e-5)
