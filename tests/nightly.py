"""Which tests run only at night, with SPECWHISPER_NIGHTLY=1: those that take long."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = "SPECWHISPER_NIGHTLY" in os.environ


def mostly_nightly(cases: Iterable[Any], *, by_day: int = 1) -> list[Any]:
    """Return the cases of a parametrized test, all but the first few marked as nightly."""
    return [
        case
        if number < by_day
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
        for number, case in enumerate(cases)
    ]


def examples(by_day: int, at_night: int) -> int:
    """Return how many examples a property-based test tries."""
    return at_night if NIGHTLY else by_day
