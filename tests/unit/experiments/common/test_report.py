"""Bars, machine facts and the JSON that carries them."""

import io

import pytest
from rich.console import Console

from experiments.common.bench.report import Bar, print_bars


@pytest.mark.parametrize(("value", "verdict"), [(0.5, "holds"), (1.0, "short"), (float("nan"), "short")])
def test_a_bar_is_one_line_with_its_verdict(value, verdict):
    out = io.StringIO()
    bar = Bar("full over transformers", value, 1.0, f"{value:.2f} [0.40, 0.60]")
    assert print_bars([bar], Console(file=out, width=200)) == (verdict == "holds")
    assert out.getvalue() == f"full over transformers: {value:.2f} [0.40, 0.60], bar < 1: {verdict}\n"


@pytest.mark.parametrize(("value", "verdict"), [(0.9, "short"), (1.0, "holds"), (float("nan"), "short")])
def test_a_bar_may_be_a_least_value(value, verdict):
    assert str(Bar("share", value, 1.0, "x", at_least=True)) == f"share: x, bar >= 1: {verdict}"
