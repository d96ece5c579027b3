"""Errors name the results that come with them."""

import pytest

from specwhisper.errors import InvalidAudio, RecordingsFailed


@pytest.mark.parametrize("others", [[], ["text"], ["text", "more"]])
def test_an_error_names_the_other_results_if_there_are_any(others):
    failed = [InvalidAudio("broken"), InvalidAudio("empty")]
    error = RecordingsFailed.of(dict(enumerate(failed)), 2 + len(others), failed + others)
    assert ("The other results are in .results." in str(error)) == bool(others)
    assert error.results == failed + others


def test_an_error_does_not_name_results_that_were_yielded():
    assert ".results" not in str(RecordingsFailed.of({0: InvalidAudio("broken")}, 3))
