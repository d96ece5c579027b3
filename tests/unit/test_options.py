"""Options that cannot be meant are refused in one clear sentence."""

from __future__ import annotations

import math

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.options import (
    Acceptance,
    CompressionRatio,
    DecodingOptions,
    Task,
    fallback_temperatures,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0: it must be at least 1"),
        ({"max_initial_timestamp_s": 31.0}, "must lie between 0 and 30 seconds"),
        ({"max_initial_timestamp_s": math.nan}, "must lie between 0 and 30 seconds"),
        ({"temperatures": ()}, "name at least one, each 0 or more"),
        ({"temperatures": (-0.1,)}, "name at least one, each 0 or more"),
        ({"temperatures": (math.nan,)}, "name at least one, each 0 or more"),
        ({"temperatures": (0.4, 0.2)}, "each must be higher than the one before it"),
        ({"temperatures": (0.4, 0.4)}, "each must be higher than the one before it"),
        ({"temperatures": tuple(i / 10 for i in range(17))}, "at most 16 are tried"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "must be above 0 and at most 1"),
        ({"top_p": math.nan}, "must be above 0 and at most 1"),
        ({"seed": -1}, "seed is -1"),
        ({"acceptance_threshold": 0.0}, "must be a probability above 0"),
        (
            {"acceptance_threshold": 0.5, "acceptance": Acceptance.CLASSICAL},
            "contradicts classical acceptance",
        ),
        ({"compression_ratio_threshold": 0.0}, "must be above 0"),
        ({"logprob_threshold": 0.5}, "a log-probability is 0 or less"),
        ({"no_speech_threshold": 1.5}, "must be a probability"),
        ({"carry_initial_prompt": True}, "there is no initial_prompt to carry"),
    ],
)
def test_what_cannot_be_meant(options: dict, message: str):
    with pytest.raises(InvalidRequest, match=message):
        DecodingOptions(**options)


def test_a_threshold_makes_it_lossy_and_nothing_else_does():
    assert DecodingOptions(acceptance_threshold=0.3).is_lossy
    assert not DecodingOptions(acceptance=Acceptance.CLASSICAL, temperatures=(1.0,)).is_lossy


@pytest.mark.parametrize(
    ("temperature", "increment", "expected"),
    [
        (0.0, None, (0.0,)),
        (0.0, 0.2, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0.5, 0.3, (0.5, 0.8)),
        (1.0, 0.2, (1.0,)),
        (1.5, 0.2, (1.5,)),
    ],
)
def test_fallback_goes_up_to_1(temperature, increment, expected):
    assert fallback_temperatures(temperature, increment) == expected


def test_choices_may_be_plain_strings():
    options = DecodingOptions(task="translate", acceptance="classical", compression_ratio_of="text")
    assert options.task is Task.TRANSLATE
    assert options.acceptance is Acceptance.CLASSICAL
    assert options.compression_ratio_of is CompressionRatio.TEXT
    with pytest.raises(InvalidRequest, match="acceptance is 'rubbish': choose from exact, classical"):
        DecodingOptions(acceptance="rubbish")
