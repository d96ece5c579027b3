"""Hints follow the committed text, wherever it differs."""

import gc
import sys
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.speculation.hints import (
    FIRST_RATE,
    MAX_REACH,
    MAX_REALIGNING,
    MAX_SKIPPED,
    MIN_CHANCE,
    NUM_SEARCHED,
    Hint,
    num_worthwhile,
)
from tests.nightly import examples

TIME = "<"


def words(text: str) -> list[int]:
    """Number the words of a text; the same word has the same number."""
    return [int.from_bytes(word.encode(), "big") for word in text.split()]


def word_of(token: int) -> str:
    """Return a word without case and punctuation; empty for ``<`` and what is only punctuation."""
    text = token.to_bytes((token.bit_length() + 7) // 8, "big").decode()
    return "".join(character for character in text.casefold() if character.isalnum() and TIME not in text)


def following(hint: str, committed: str) -> Hint:
    """Return a hint after some committed text."""
    made = Hint(words(hint), word_of)
    for token in words(committed):
        made.follow(token)
    return made


def rest(hint: Hint) -> str:
    """Return the continuation as text."""
    return " ".join(
        token.to_bytes((token.bit_length() + 7) // 8, "big").decode() for token in hint.continuation()
    )


@pytest.mark.parametrize(
    ("hint", "committed", "continuation"),
    [
        ("one two three", "", "one two three"),
        ("one two three", "one two", "three"),
        ("one two three", "one two three", ""),
        ("one two three four", "one too", "three four"),  # another word
        ("one two three four", "one three", "four"),  # a word less
        ("one two three four", "one and two", "three four"),  # a word more
        ("one two three four five", "one four", "five"),  # two words less
        ("One , two three", "one two", "three"),  # case and punctuation
        ("one two three", "One, two.", "three"),
        ("<0 one two <1 <1 three", "<0 one two <1.5 <1.5", "three"),  # times
        ("one two three", "<0 one two <1.5 <1.5", "three"),
        ("<0 one two <1 <1 three", "one two", "<1 <1 three"),
        ("one two hundred thousand six", "one two hun dred thousand", "six"),  # in other tokens
        ("one two three four", "so then one two", "three four"),
        ("one two", "other words in any number and of any kind", ""),
    ],
)
def test_a_hint_goes_on_after_what_was_committed(hint, committed, continuation):
    assert rest(following(hint, committed)) == continuation


@pytest.mark.parametrize("skipped", [MAX_SKIPPED + 1, 500])
def test_a_lost_hint_is_found_again(skipped):
    hint = Hint(range(1000), str)
    committed = list(range(skipped, 900))
    for token in committed[: MAX_REALIGNING + NUM_SEARCHED]:
        hint.follow(token)
    assert hint.position == skipped + MAX_REALIGNING + NUM_SEARCHED


def test_of_several_places_the_nearest_one_is_found():
    verse = list(range(10, 20))
    hint = Hint([*verse, *range(100, 160), *verse, *range(200, 260), *verse], str)
    for position, nearest in ((69, 70), (72, 70), (100, 70), (30, 0), (139, 140), (38, 70), (37, 0)):
        hint.seek(position)
        hint.seek(None)
        for token in verse[:NUM_SEARCHED]:
            hint.follow(token)
        assert hint.position == nearest + NUM_SEARCHED


def test_of_several_places_that_with_most_of_the_words_before_is_found():
    common = [1, 2, 3]
    hint = Hint([*common, *range(10, 40), 50, 51, *common, *range(60, 90), 91, *common], str)
    hint.seek(None)
    for token in (7, 50, 51, *common):
        hint.follow(token)
    assert hint.position == 38


def test_words_with_spaces_are_found():
    hint = Hint(range(20), lambda token: " " * (token % 3 + 1) + str(token))
    hint.seek(None)
    for token in (17, 18, 19):
        hint.follow(token)
    assert hint.position == 20


edits = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["other", "more", "less"])), max_size=6)


@given(edits)
def test_single_errors_cost_few_candidates(errors):
    """Each error costs its own candidate, and at most two more until the words match again."""
    truth = list(range(100, 170))
    text = list(truth)
    positions = sorted({at for at, _ in errors}, reverse=True)
    if any(first - second < 6 for first, second in pairwise(positions)):
        return  # errors in a row aren't single errors
    kinds = dict(errors)
    for at in positions:
        match kinds[at]:
            case "other":
                text[at] = 900 + at
            case "more":
                text.insert(at, 900 + at)
            case "less":
                del text[at]
    hint, num_wrong = Hint(text, str), 0
    for token in truth:
        num_wrong += list(hint.continuation(max_tokens=1)) != [token]
        hint.follow(token)
    assert num_wrong <= 3 * len(positions)
    assert hint.position == len(text)


tokens = st.lists(st.integers(0, 4), max_size=60)


@given(tokens, tokens, st.lists(st.integers(0, 3), max_size=60))
def test_any_hint_stays_within_its_tokens(text, committed, growth):
    hint = Hint(text, lambda token: str(token) if token else "")
    for token, num_added in zip(committed, growth, strict=False):
        hint.follow(token)
        hint.extend([token] * num_added)
        text = [*text, *[token] * num_added]
        assert len(hint) == len(text)
        if hint.position is not None:
            assert 0 <= hint.position <= len(text)
            assert list(hint.continuation()) == text[hint.position :]


def num_lines(run) -> int:
    """Count the lines of Python that a call runs."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()  # finalizers of other tests would count, too
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines


def test_following_takes_constant_time():
    """The work for a token depends neither on the length of the hint nor on that of the committed text."""

    def work(num_tokens: int, num_before: int) -> int:
        hint = Hint(range(num_tokens), str)
        for token in [-1] * num_before:  # loses it, so that all of it is indexed
            hint.follow(token)
        return num_lines(lambda: [hint.follow(token) for token in range(1_000, 3_000) if token % 5])

    assert work(30_000, 200) == work(4_000, 200) == work(4_000, 20_000)


few_words = st.lists(st.integers(0, 2), min_size=1, max_size=8)


@settings(max_examples=examples(10, 200), deadline=None)
@given(few_words, few_words, st.lists(st.sampled_from(["follow", "grow", "cut", "lose"]), max_size=30))
def test_no_text_of_few_words_makes_following_slow(text, committed, changes):
    """Repetitions are the worst case of alignment and of searching."""
    hint = Hint(text * 400, lambda token: str(token) if token else "")
    num_tokens, lines = len(hint), 0
    for number, token in enumerate(committed * 8):
        match changes[number % len(changes)] if changes else "follow":
            case "grow":
                hint.extend(text)
                num_tokens += len(text)
            case "cut":
                hint.truncate(max(len(text), len(hint) - 3))
            case "lose":
                hint.seek(None)
        lines += num_lines(partial(hint.follow, token))
    # Each token of the hint is indexed once, when it is first searched.
    assert lines <= 10 * num_tokens + 700 * 8 * len(committed)


@pytest.mark.parametrize("num_wrong", [0, 1])
def test_a_hint_that_grows_after_its_end_continues_where_the_text_is(num_wrong):
    """The blocks that were on their way at a correction often arrive later than the tokens of the target."""
    text = list(range(40))
    hint = Hint(text[:10], str)
    for token in [*range(100, 100 + num_wrong), *text[num_wrong:20]]:
        hint.follow(token)
    assert list(hint.continuation()) == []
    for end in range(11, 41):
        hint.extend(text[end - 1 : end])
    assert list(hint.continuation()) == text[20:]
    assert hint.rate > FIRST_RATE


def test_a_hint_that_grows_after_its_end_with_another_text_is_aligned():
    hint = Hint(range(10), str)
    for token in range(16):
        hint.follow(token)
    hint.extend([10, 99, 12, 13, 14, 15, 16, 17])
    assert list(hint.continuation()) == [16, 17]


def test_a_hint_waits_a_while_for_what_comes_after_its_end():
    hint = Hint(range(4), str)
    for token in range(3 + MAX_REALIGNING):
        hint.follow(token)
    assert hint.position == 4 and not hint.is_following
    hint.follow(3 + MAX_REALIGNING)
    assert hint.position is None


@given(tokens, st.lists(st.tuples(st.integers(0, 60), tokens), max_size=4), tokens)
def test_a_hint_that_was_cut_and_has_grown_is_found_as_a_new_one_is(text, edits, committed):
    def found(hint: Hint) -> int | None:
        hint.seek(0)
        hint.seek(None)
        for token in committed:
            hint.follow(token)
        return hint.position

    old = Hint(text, lambda token: str(token) if token else "")
    for num_kept, added in edits:
        found(old)
        old.truncate(num_kept)
        old.extend(added)
        text = text[:num_kept] + added
    assert found(old) == found(Hint(text, lambda token: str(token) if token else ""))


def test_a_hint_that_may_not_continue_is_worth_more_if_it_holds_once_it_does():
    brittle, steady = (Hint(range(99), str, rate=0.7, survival=survival) for survival in (0.7, 0.95))
    assert steady.reach(0.1) > 2 * brittle.reach(0.1)


@given(st.floats(0.1, 0.99), st.floats(0.01, 1.0))
def test_the_worthwhile_candidates_make_a_tokens_time_shortest(rate, token_share):
    def token_time(num: int) -> float:
        return (1 + token_share * (1 + num)) / sum(rate**i for i in range(num + 1))

    num = num_worthwhile(rate, rate, token_share)
    enough = next(i for i in range(MAX_REACH + 1) if rate ** (i + 1) < MIN_CHANCE or i == MAX_REACH)
    assert 0 <= num <= enough
    assert token_time(num) == pytest.approx(min(map(token_time, range(enough + 1))))


def test_free_candidates_are_taken_as_long_as_one_may_be_right():
    assert num_worthwhile(1.0, 1.0, 0.5) == MAX_REACH
    assert num_worthwhile(0.3, 0.3, 0.0) == 1
    assert num_worthwhile(0.5, 0.95, 0.1) > num_worthwhile(0.5, 0.5, 0.1)
    assert num_worthwhile(0.05, 0.95, 0.0) == 0
    assert 0.9 ** num_worthwhile(0.9, 0.9, 0.0) >= MIN_CHANCE > 0.9 ** (num_worthwhile(0.9, 0.9, 0.0) + 1)
