"""Hints reach each server that a session continues on."""

from __future__ import annotations

import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hint_feed import HintFeed, check_hint_text
from specwhisper.types import HintText


def test_the_next_server_gets_what_was_not_replaced():
    feed, first, second = HintFeed(), [], []
    feed.put(HintText(0, "a"))
    feed.connect(first.append)
    feed.put(HintText(20, "c"))
    feed.put(HintText(10, "b"))
    feed.put(HintText(30, "d"))
    feed.connect(second.append)
    feed.put(HintText(40, "e"))
    assert first == [HintText(0, "a"), HintText(20, "c"), HintText(10, "b"), HintText(30, "d")]
    assert second == [HintText(0, "a"), HintText(10, "b"), HintText(30, "d"), HintText(40, "e")]


def test_the_oldest_are_forgotten_beyond_the_limit():
    feed, kept = HintFeed(), []
    for sample in range(1_000):
        feed.put(HintText(sample, "x" * 4_000))
    feed.connect(kept.append)
    assert [hint.start_sample for hint in kept] == list(range(1_000 - len(kept), 1_000))
    assert 40 < len(kept) <= 50


def test_a_long_text_is_refused_by_its_bytes():
    check_hint_text("é" * 2_000)
    with pytest.raises(InvalidRequest, match="4002 bytes"):
        check_hint_text("é" * 2_001)
