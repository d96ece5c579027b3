"""A text that repeats itself is cut after the first time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.speech import SPOKEN
from specwhisper.transcription.live_transcript import MAX_PERIOD, MAX_TIMES, num_before_repeats
from tests.live import letters, token_ids


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ([""], ""),
        (["ABC"], "ABC"),
        (["NONONO"], "NONONO"),  # as people speak
        (["ANONONONO"], "ANO"),
        (["AAAA"], "A"),
        (["ABBBB"], "AB"),
        (["BBBBA"], "BBBBA"),  # other text follows
        (["ABCD" * 4], "ABCD"),
        (["A", 1.0, 1.0, "A", 2.0, 2.0, "A", 3.0, 3.0, "A", 4.0, 4.0], "A"),  # at other times
        (["A" * 200], "A"),
    ],
)
def test_phrases_are_cut_after_the_first(parts, kept):
    tokens = token_ids(*parts)
    assert letters(tokens[: num_before_repeats(tokens, SPOKEN)]) == kept


@given(start=st.lists(st.integers(0, 20), max_size=20), times=st.integers(1, 9), data=st.data())
def test_a_phrase_stays_at_most_three_times(start, times, data):
    phrase = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=MAX_PERIOD))
    tokens = [*start, *phrase * times]
    count = num_before_repeats(tokens, SPOKEN)
    assert 0 <= count <= len(tokens) and (count > 0 or not tokens)
    if times > MAX_TIMES:
        assert count <= len(start) + len(phrase)
    assert num_before_repeats(tokens[:count], SPOKEN) <= count
