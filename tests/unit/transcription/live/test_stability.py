"""The stable part of a hypothesis, and its match with final text."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specwhisper.transcription.stability import agreed, continuation, whole_words

# Tokens: capital letters begin a word, small ones continue it.
WORDS = "ABCabc"
token_lists = st.lists(st.sampled_from([ord(letter) for letter in WORDS]), max_size=7)


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def begins(token: int) -> bool:
    return chr(token).isupper()


def always(token: int) -> bool:
    return True


def edit_distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """The definition, as it is written down."""

    @cache
    def between(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = between(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(changed, between(i - 1, j) + 1, between(i, j - 1) + 1)

    return between(len(one), len(other))


class TestContinuation:
    @pytest.mark.parametrize(
        ("final", "text", "rest"),
        [
            ("", "ABC", "ABC"),
            ("AB", "ABC", "C"),
            ("AB", "AB", ""),
            ("AB", "", ""),
            ("ABC", "AXCD", "D"),  # another word in the middle
            ("ABC", "ABXD", "D"),  # another word last: it stands for the one it was
            ("ABC", "ACD", "D"),  # a word less
            ("ABC", "ABXCD", "D"),  # a word more, before the last one: that one is not repeated
            ("ABC", "AXBCD", "D"),
            ("BB", "BXBD", "D"),
            ("ABCD", "ABC", ""),  # the end is gone
            ("AB", "XYZ", "Z"),  # nothing is alike: as many are left out
            ("Aa", "AaaB", "B"),  # the word has grown: its rest is not a word of its own
            ("AaB", "AbBC", "C"),
            ("ABAB", "ABABAB", "AB"),  # words that are spoken twice are written twice
        ],
    )
    def test_text_continues_after_the_closest_match(self, final, text, rest):
        assert text[continuation(ids(final), ids(text), begins) :] == rest

    @given(final=token_lists, text=token_lists)
    def test_no_prefix_matches_better(self, final, text):
        start = continuation(final, text, always)
        edits = [edit_distance(tuple(final), tuple(text[:i])) for i in range(len(text) + 1)]
        if text[: len(final)] == final:
            assert start == len(final)
        assert edits[start] == min(edits)
        best = [i for i, number in enumerate(edits) if number == min(edits)]
        same_end = [i for i in best if i and text[i - 1 : i] == final[-1:]] or best
        assert start == len(final) or start == min(same_end, key=lambda i: (abs(i - len(final)), -i))

    @given(final=token_lists, text=token_lists)
    def test_no_continuation_begins_within_a_word(self, final, text):
        start = continuation(final, text, begins)
        free = continuation(final, text, always)
        assert 0 <= free <= start <= len(text)
        assert start in (0, len(text)) or begins(text[start])
        assert not any(begins(token) for token in text[free:start]) or free == 0

    @given(final=token_lists, more=token_lists)
    def test_final_text_that_is_repeated_is_left_out_and_no_more(self, final, more):
        assert continuation(final, [*final, *more], always) == len(final)

    @given(data=st.data(), place=st.integers(0, 4), kind=st.sampled_from(["insert", "leave out", "replace"]))
    def test_one_word_worded_differently_neither_loses_nor_repeats_one(self, data, place, kind):
        final = data.draw(st.lists(st.sampled_from(ids("ABCDEFGH")), min_size=5, max_size=8, unique=True))
        text = list(final)
        if kind == "insert":
            text.insert(place, ord("X"))
        elif kind == "leave out":
            del text[min(place, len(final) - 2)]
        else:
            text[place] = ord("X")
        rest = ids("PQR")
        assert [*text, *rest][continuation(final, [*text, *rest], begins) :] == rest


class TestAgreed:
    @pytest.mark.parametrize(
        ("before", "now", "shared"),
        [
            ("", "AB", ""),
            ("AB", "", ""),
            ("AB", "AB", "AB"),
            ("AB", "ABC", "AB"),
            ("ABC", "AB", "AB"),
            ("AaB", "AaC", "Aa"),
            ("AaBb", "AaBc", "Aa"),  # not half a word
            ("AaB", "AaBb", "Aa"),  # the word has grown
            ("AaBb", "AaB", "Aa"),  # the word has shrunk
            ("XB", "AB", ""),
        ],
    )
    def test_whole_words_that_both_begin_with_are_shared(self, before, now, shared):
        assert now[: agreed(ids(before), ids(now), begins)] == shared

    @given(before=token_lists, now=token_lists)
    def test_agreement_is_symmetric(self, before, now):
        count = agreed(before, now, begins)
        assert count == agreed(now, before, begins)
        assert before[:count] == now[:count]
        for text in (before, now):
            assert count in (0, len(text)) or begins(text[count])

    @given(before=token_lists, now=token_lists)
    def test_no_further_word_is_shared(self, before, now):
        count = agreed(before, now, begins)
        ends = [
            i
            for i in range(1, min(len(before), len(now)) + 1)
            if before[:i] == now[:i]
            and (i == len(before) or begins(before[i]))
            and (i == len(now) or begins(now[i]))
        ]
        assert count == max(ends, default=0)


class TestWholeWords:
    @given(text=token_lists, data=st.data())
    def test_a_prefix_is_cut_back_to_a_word_and_no_further(self, text, data):
        count = data.draw(st.integers(0, len(text)))
        kept = whole_words(text, count, begins)
        assert 0 <= kept <= count
        assert kept in (0, len(text)) or begins(text[kept])
        assert not any(begins(text[i]) for i in range(kept + 1, min(count + 1, len(text))))
