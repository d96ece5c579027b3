"""Long tests run only with SPECWHISPER_NIGHTLY=1."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = "SPECWHISPER_NIGHTLY" in os.environ


def mostly_nightly(cases: Iterable[Any], *, by_day: int = 1) -> list[Any]:
    """Return the cases of a parametrized test; only the first ``by_day`` run by day."""
    cases = list(cases)
    return cases[:by_day] + at_night(cases[by_day:])


def at_night(cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test; none of them runs by day."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
        for case in cases
    ]


def examples(by_day: int, at_night: int) -> int:
    """Return the number of examples of a property test."""
    return at_night if NIGHTLY else by_day
