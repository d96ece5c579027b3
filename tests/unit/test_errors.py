"""Errors name the results that come with them."""

from __future__ import annotations

import pytest

from specwhisper.errors import InvalidAudio, RecordingsFailed


@pytest.mark.parametrize("others", [[], ["text"], ["text", "more"]])
def test_other_results_are_named_where_there_are_some(others):
    failed = [InvalidAudio("broken"), InvalidAudio("empty")]
    error = RecordingsFailed.of(dict(enumerate(failed)), 2 + len(others), failed + others)
    assert ("The other results are in .results." in str(error)) == bool(others)
    assert error.results == failed + others


def test_results_that_were_yielded_already_are_not_named():
    assert ".results" not in str(RecordingsFailed.of({0: InvalidAudio("broken")}, 3))
