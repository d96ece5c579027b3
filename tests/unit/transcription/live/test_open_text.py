"""Text that is not final: what two hypotheses agree on, and what follows verified text."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.transcription.live.open_text import OpenText, continuation, num_agreed, words_of
from specwhisper.types import Hypothesis

words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6)


def shown(*hypotheses: tuple[int, str], verified: str = "", language: str = "en") -> tuple[str, str]:
    """Return the stable and the tentative text after hypotheses: first sample and text of each."""
    text = OpenText()
    text.language = language
    for start, hypothesis in hypotheses:
        text.show(Hypothesis(1, start, start + 1, hypothesis))
    return text.after(verified)


@pytest.mark.parametrize(
    ("hypotheses", "verified", "expected"),
    [
        ([], "", ("", "")),
        ([(0, " one two")], "", ("", " one two")),
        ([(0, " one two"), (0, " one two three")], "", (" one two", " three")),
        ([(0, " one two"), (0, " one too three")], "", (" one", " too three")),
        ([(0, " one two three"), (0, " one")], "", (" one", "")),
        ([(0, " x"), (0, " one two"), (0, " one two")], "", (" one two", "")),
        # What the target has of it stays out, however the draft wrote it.
        ([(0, " one two"), (0, " one two three")], " One", (" two", " three")),
        ([(0, " one two"), (0, " won two three")], " One two", ("", " three")),
        ([(0, " one two")], " one two three", ("", "")),
        # Pieces follow one another.
        ([(0, " one"), (0, " one"), (9, " two"), (9, " two three")], "", (" one two", " three")),
        ([(0, " one"), (9, " two"), (9, " two")], "", ("", " one two")),
        ([(9, " two"), (0, " one"), (0, " one")], " one", ("", " two")),
    ],
)
def test_two_hypotheses_make_text_stable(hypotheses, verified, expected):
    assert shown(*hypotheses, verified=verified) == expected


def test_characters_are_the_words_of_a_language_without_spaces():
    assert words_of("日本 語", "ja") == ["日", "本", " ", "語"]
    assert shown((0, "日本"), (0, "日本語"), language="ja") == ("日本", "語")


def test_final_pieces_and_what_a_recogniser_replaces_are_forgotten():
    text = OpenText()
    for start, hypothesis in ((0, " one"), (5, " two"), (9, " three")):
        text.show(Hypothesis(1, start, start + 1, hypothesis))
    text.forget_before(5)
    assert text.after("") == ("", " two three")
    text.show_from(9, [" four"])
    text.show_from(9, [" four", " five"])
    assert text.after("") == ("", " two four five")
    text.show_from(5, [" six"])
    assert text.after("") == ("", " six")


@given(before=words, now=words)
def test_agreement_is_the_longest_common_beginning(before, now):
    count = num_agreed(before, now)
    assert before[:count] == now[:count]
    assert before[count : count + 1] != now[count : count + 1] or count == len(before) == len(now)


@given(known=words, text=words)
def test_no_other_beginning_is_closer_to_the_known_words(known, text):
    edits = [_edit_distance(tuple(known), tuple(text[:end])) for end in range(len(text) + 1)]
    begin = continuation(known, text)
    assert edits[begin] == min(edits) and min(edits) not in edits[begin + 1 :]


@cache
def _edit_distance(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    if not one or not other:
        return len(one) + len(other)
    changed = _edit_distance(one[:-1], other[:-1]) + (one[-1] != other[-1])
    return min(changed, _edit_distance(one[:-1], other) + 1, _edit_distance(one, other[:-1]) + 1)


@given(
    hypotheses=st.lists(st.tuples(st.sampled_from([0, 7]), words), max_size=6),
    verified=words,
)
def test_stable_and_tentative_text_are_all_that_follows(hypotheses, verified):
    """Without verified text they are the newest hypotheses of all pieces."""
    texts = [(start, "".join(f" {word}" for word in text)) for start, text in hypotheses]
    newest = dict(texts)
    whole = "".join(text for _, text in sorted(newest.items()))
    assert "".join(shown(*texts)) == whole
    after = "".join(shown(*texts, verified=" ".join(verified)))
    assert whole.endswith(after)
