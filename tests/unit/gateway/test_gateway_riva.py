"""Settings of Riva's realtime client."""

from math import inf, nan

import pytest

from specwhisper.live import EndpointingOptions
from specwhisper_gateway.errors import InvalidEvent
from specwhisper_gateway.realtime.riva import updated
from specwhisper_gateway.realtime.settings import RealtimeSettings

DEFAULT_MS = EndpointingOptions().silence_duration_ms


@pytest.mark.parametrize(
    ("endpointing", "silence_ms"),
    [
        ({}, DEFAULT_MS),
        ({"stop_history": -1, "stop_threshold": -1.0}, DEFAULT_MS),
        ({"stop_history": 300, "stop_threshold": -1.0}, 300),
        ({"stop_history": 800, "stop_threshold": 0.5}, 400),
    ],
)
def test_the_part_of_a_window_that_must_be_silent_ends_an_utterance(endpointing, silence_ms):
    settings = updated(RealtimeSettings(), {"endpointing_config": endpointing})
    assert settings.endpointing.silence_duration_ms == silence_ms


@pytest.mark.parametrize(
    "endpointing",
    [
        {"stop_history": "300"},
        {"stop_history": 10**400},
        {"stop_history": 300, "stop_threshold": nan},
        {"stop_history": 300, "stop_threshold": inf},
        {"stop_history": 300, "stop_threshold": [1]},
        [300],
    ],
)
def test_numbers_that_no_window_has_are_refused(endpointing):
    with pytest.raises(InvalidEvent):
        updated(RealtimeSettings(), {"endpointing_config": endpointing})


def test_boosted_phrases_are_keywords():
    boosting = {"word_boosting_list": [{"phrases": ["Clara", "Vienna"]}, {"phrases": None}, {}]}
    assert updated(RealtimeSettings(), {"word_boosting": boosting}).keywords == ("Clara", "Vienna")


@pytest.mark.parametrize("phrases", [5, "Bees", [["Clara"]], {"Clara": 20}])
def test_phrases_that_are_no_texts_are_refused(phrases):
    with pytest.raises(InvalidEvent, match="phrases must be a list of texts"):
        updated(RealtimeSettings(), {"word_boosting": {"word_boosting_list": [{"phrases": phrases}]}})
