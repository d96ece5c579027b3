"""Benchmarks share bars, medians, ratios and the replayed draft."""

import io

import pytest
from rich.console import Console

from experiments.common.bench.report import Bar, print_bars
from experiments.common.bench.stats import ratio_of_medians
from experiments.common.replay.trace import Decoding


@pytest.mark.parametrize("verdict", ["holds", "short"])
def test_a_bar_is_one_line_with_its_verdict(verdict):
    out = io.StringIO()
    bar = Bar("full", 0.5 if verdict == "holds" else float("nan"), 1.0, "[0.40, 0.60]")
    assert print_bars([bar], Console(file=out, width=200)) == (verdict == "holds")
    assert out.getvalue() == f"full: [0.40, 0.60], bar < 1: {verdict}\n"
    assert Bar("share", 1.0, 1.0, "x", at_least=True).holds


def test_a_ratio_of_paired_rounds_ignores_slow_rounds_and_widens_with_noise():
    slowdown = [1.0, 1.0, 5.0, 1.1, 9.0, 1.0, 2.0]
    ratio = ratio_of_medians([2 * x for x in slowdown], [4 * x for x in slowdown], seed=0)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    calm = ratio_of_medians([1.0, 1.01, 0.99, 1.0, 1.02], [2.0] * 5, seed=0)
    noisy = ratio_of_medians([0.5, 2.0, 1.0, 1.5, 0.7], [2.0] * 5, seed=0)
    assert calm.low <= calm.value <= calm.high
    assert noisy.high - noisy.low > 5 * (calm.high - calm.low)


def test_a_draft_follows_its_divergence_and_then_repeats_its_last_token():
    decoding = Decoding(
        *("", 0, "", (), 0.0, (1, 2, 3, 9), (0.0,) * 4, (0.0,) * 4),
        divergences={2: (5, 6)},
        draft_log_probs=(-0.1, -0.2, -0.9, -0.3),
        continuation_log_probs={2: (-0.9, -1.5)},
    )
    found = {
        written: decoding.draft_after(written)
        for written in ((), (1,), (1, 2), (1, 2, 3), (1, 2, 5), (1, 2, 5, 6))
    }
    assert list(found.values()) == [(1, -0.1), (2, -0.2), (5, -0.9), (9, -0.3), (6, -1.5), (6, -1.5)]
    assert decoding.draft_after((1, 2, 5, 6, 6))[0] == 6
    assert (
        decoding.draft_after((7, 7, 7))[0] == decoding.draft_after((1, 2, 3, 9))[0] == 9
    )  # not in the trace
