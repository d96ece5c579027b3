"""Medians, spread and ratios as the experiments report them."""

import pytest

from experiments.common.bench.stats import ratio_of_medians, spread


def test_spread_is_median_and_quartiles():
    found = spread([5, 1, 3, 2, 4])
    assert (found.median, found.lower, found.upper) == (3, 2, 4)
    assert f"{found:.1f}" == "3.0 (2.0-4.0)"


def test_ratio_of_paired_rounds_ignores_slow_rounds():
    slowdown = [1.0, 1.0, 5.0, 1.1, 9.0, 1.0, 2.0]
    ratio = ratio_of_medians([2 * x for x in slowdown], [4 * x for x in slowdown], seed=0)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 0.5))


def test_interval_holds_the_ratio_and_widens_with_noise():
    calm = ratio_of_medians([1.0, 1.01, 0.99, 1.0, 1.02], [2.0] * 5, seed=0)
    noisy = ratio_of_medians([0.5, 2.0, 1.0, 1.5, 0.7], [2.0] * 5, seed=0)
    assert calm.low <= calm.value <= calm.high
    assert noisy.high - noisy.low > 5 * (calm.high - calm.low)
