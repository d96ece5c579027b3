"""Hints from outside run through all windows, and their cost has a bound, whatever they say."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.speculation.acceptance import accept
from specwhisper.speculation.hints import (
    CHUNK_CHARACTERS,
    MAX_OLD,
    MAX_TOKENS,
    MIN_AHEAD,
    GivenHint,
    LiveHint,
    ScriptHint,
)
from specwhisper.speculation.ledger import Ledger, SharedHints
from tests.nightly import examples, mostly_nightly

SECOND = 16_000


def numbers(text: str) -> list[int]:
    """Tokenize a text of numbers."""
    return [int(word) for word in text.split()]


def hint_of(text: str) -> ScriptHint:
    return ScriptHint(text, numbers, str)


def live_hint() -> LiveHint:
    return LiveHint(numbers, str)


def follow(hint: GivenHint, tokens) -> None:
    for token in tokens:
        hint.follow(token)


def test_the_next_window_continues_after_what_is_not_decoded_again():
    hint = hint_of("0 1 2 3 4 5 6 7 8 9")
    hint.open_window(0)
    follow(hint, [0, 1, 2, 3, 4])
    hint.open_window(3)
    assert hint.continuation() == [3, 4, 5, 6, 7, 8, 9]
    hint.open_window(0)  # decoded again, at another temperature
    assert hint.continuation() == [3, 4, 5, 6, 7, 8, 9]
    follow(hint, [3, 4])
    hint.open_window(2)
    assert hint.continuation() == [5, 6, 7, 8, 9]


def test_a_text_is_tokenized_as_it_is_reached():
    length = 20_000
    hint = hint_of(" ".join(map(str, range(length))))
    seen = [len(hint)]
    position = 0
    while position < length:
        hint.open_window(0 if not position else 200)
        follow(hint, range(position, position + 200))
        assert hint.position == position + 200
        position += 200
        seen.append(len(hint))
    assert MIN_AHEAD <= seen[0] < MIN_AHEAD + CHUNK_CHARACTERS
    assert seen == sorted(seen) and seen[-1] == length


def test_a_lost_text_is_searched_in_all_of_it_token_by_token():
    text = " ".join(map(str, range(20_000)))
    hint = hint_of(text)
    hint.open_window(0)
    for token in range(15_000, 15_200):
        num_before = len(hint)
        hint.follow(token)
        assert len(hint) - num_before <= 2 * CHUNK_CHARACTERS
        if hint.position == token + 1 and hint.is_following:
            break
    assert token - 15_000 <= len(text) / CHUNK_CHARACTERS
    assert len(hint) >= token + MIN_AHEAD, "the rest of the window is there as well"
    hint.open_window(token + 1 - 15_000)
    assert hint.continuation(max_tokens=2) == [token + 1, token + 2]


def test_a_window_that_begins_elsewhere_is_not_begun_there_again():
    hint = hint_of(" ".join(map(str, range(500))))
    hint.open_window(0)
    follow(hint, range(300, 320))
    assert hint.position == 320
    hint.open_window(0)  # the next step decodes the same audio
    follow(hint, [300, 301, 302])
    assert hint.position == 303
    hint.open_window(3)
    follow(hint, range(1_000, 1_020))  # text that the hint lacks
    assert hint.position is None
    hint.open_window(20)
    follow(hint, [400, 401, 402])
    assert hint.position == 403


def test_a_window_that_is_decoded_again_begins_where_it_did():
    hint = hint_of(" ".join(map(str, range(500))))
    hint.open_window(0)
    follow(hint, [0, 1, 2, *[900] * 30])  # repetition
    assert hint.position is None
    hint.open_window(0)  # at another temperature
    assert hint.continuation(max_tokens=2) == [0, 1]


def tokenized(*texts: str) -> list[str]:
    """Return the pieces of text that hints tokenize."""
    pieces: list[str] = []

    def tokenize(text: str) -> list[int]:
        pieces.append(text)
        return []

    for text in texts:
        ScriptHint(text, tokenize, str)
    return pieces


def test_a_text_has_no_special_tokens_and_one_without_spaces_is_split():
    assert tokenized("a <|endoftext|>\nb") == ["a < |endoftext|> b"]
    assert tokenized("字" * 3 * CHUNK_CHARACTERS) == ["字" * CHUNK_CHARACTERS, "字" * 2 * CHUNK_CHARACTERS]


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("WE MET AT NOON.\nIT RAINED! DID IT?", "We met at noon. It rained! Did it?"),
        ("OLD McDONALD HAD A FARM", "Old mcdonald had a farm"),
        ("NASA AND", "NASA AND"),
        ("The NASA and the FBI", "The NASA and the FBI"),
        ("1 2 3 4", "1 2 3 4"),
    ],
)
def test_capitals_are_written_as_whisper_writes(text, small):
    assert tokenized(text) == [small]


def test_lines_are_joined_as_their_script_has_words():
    assert tokenized("今日は。\nいい天気です\nね") == ["今日は。いい天気ですね"]
    assert tokenized("ok\n今日は\nWhisper です", "one\n two", " \n") == ["ok 今日は Whisper です", "one two"]


def test_a_session_that_continues_finds_its_place_by_the_text_before():
    hint = hint_of(" ".join(map(str, range(20_000))))
    hint.open_later([200, 201, 202])
    assert hint.position == 203
    assert list(hint.continuation(max_tokens=2)) == [203, 204]
    hint.open_window(0, 9 * SECOND)  # decoded again
    assert hint.position == 203


def test_a_session_that_continues_without_text_proposes_nothing_until_it_has_some():
    hint = hint_of(" ".join(map(str, range(20_000))))
    hint.open_later([])
    assert list(hint.continuation()) == []
    follow(hint, [200, 201, 202])
    assert hint.position == 203


def test_a_text_has_a_largest_number_of_tokens():
    hint = hint_of(" ".join(["7"] * 2 * MAX_TOKENS))
    hint.open_later([])
    follow(hint, range(8, 8 + 2 * MAX_TOKENS // CHUNK_CHARACTERS * 2))
    assert MAX_TOKENS <= len(hint) < MAX_TOKENS + 2 * CHUNK_CHARACTERS


def test_an_utterance_that_grows_is_followed():
    hint = live_hint()
    hint.open_window(0, 0)
    hint.replace(0, "0 1")
    assert hint.continuation() == [0, 1]
    follow(hint, [0])
    hint.replace(0, "0 1 2")
    assert hint.continuation() == [1, 2]
    follow(hint, [1, 2, 3, 4])  # the target is ahead
    hint.replace(0, "0 1 2 3 4 5 6")
    assert hint.continuation() == [5, 6]
    hint.replace(0, "0 9 2 3 4 5 7")  # other words than before
    assert hint.continuation() == [5, 7]
    hint.replace(0, "")
    assert hint.continuation() == []


def test_a_window_begins_at_the_piece_of_its_time():
    hint = live_hint()
    hint.open_window(0, 0)
    hint.replace(0, "0 1 2")
    hint.replace(10 * SECOND, "10 11 12")
    hint.replace(20 * SECOND, "20 21 22")
    follow(hint, [7, 7])
    hint.open_window(2, 10 * SECOND)
    assert hint.continuation()[0] == 10
    follow(hint, [10, 11, 12])
    hint.open_window(0, 10 * SECOND)  # the same audio, and more of it
    assert hint.continuation()[:4] == [10, 11, 12, 20]
    follow(hint, [10, 11, 12, 20])
    hint.open_window(2, 12 * SECOND)  # in the middle of a piece
    assert hint.continuation()[0] == 12
    hint.open_window(0, 30 * SECOND)
    assert hint.continuation()[0] == 20


def test_text_from_a_time_on_replaces_what_was_there():
    hint = live_hint()
    hint.open_window(0, 0)
    hint.replace(0, "0 1 2 3")
    follow(hint, [0, 1])
    hint.replace(5 * SECOND, "50 51")
    hint.replace(8 * SECOND, "80")
    hint.replace(6 * SECOND, "60")
    assert hint.continuation() == [2, 3, 50, 51, 60]
    hint.open_window(0, 6 * SECOND)
    assert hint.continuation() == [60]


def test_old_pieces_are_dropped():
    hint = live_hint()
    for utterance in range(2_000):
        start_sample = utterance * 5 * SECOND
        words = range(10 * utterance, 10 * utterance + 10)
        hint.open_window(10, start_sample)
        hint.replace(start_sample, " ".join(map(str, words[:5])))
        follow(hint, words[:3])
        hint.replace(start_sample, " ".join(map(str, words)))
        follow(hint, words[3:])
        assert hint.position == len(hint)
    assert len(hint) < MAX_OLD + 100


@given(st.data())
def test_any_texts_and_tokens_keep_the_position_within_the_text(data):
    tokens = st.integers(0, 6)
    hint, window = live_hint(), []
    hint.open_window(0, 0)
    for _ in range(data.draw(st.integers(1, 20))):
        match data.draw(st.sampled_from(["text", "tokens", "window"])):
            case "text":
                seconds, words = data.draw(st.integers(0, 9)), data.draw(st.lists(tokens, max_size=9))
                hint.replace(seconds * SECOND, " ".join(map(str, words)))
            case "tokens":
                new = data.draw(st.lists(tokens, min_size=1, max_size=9))
                follow(hint, new)
                window += new
            case _:
                num_kept = data.draw(st.integers(0, len(window)))
                hint.open_window(num_kept, data.draw(st.integers(0, 9)) * SECOND)
                window = []
        assert hint.position is None or 0 <= hint.position <= len(hint)
        assert 0 <= hint.rate <= 1


TEXT = list(range(1, 601))  # committed tokens, one word each
MAX_COST = 1.02  # over target-only


def misleading(num_right: int, num_wrong: int, text: Sequence[int] = TEXT, num_first: int = 0) -> str:
    """Return a hint of the text's words, with other words between them, and so many before them."""
    words, other = [*range(20_000, 20_000 + num_first)], 10_000
    for start in range(0, len(text), num_right):
        words += text[start : start + num_right]
        words += range(other, other + num_wrong)
        other += num_wrong
    return " ".join(map(str, words))


def cost_over_target_only(hint: str, token_share: float, text: Sequence[int] = TEXT) -> float:
    """Decode the text with a hint; return the time over that without one.

    A forward pass takes 1 without tokens, and ``token_share`` for each.
    """
    ledger = Ledger(shared=SharedHints(script=hint_of(hint), token_share=lambda: token_share))
    time = 0.0
    while (num_committed := len(ledger.committed)) < len(text):
        candidates = ledger.next_candidates()
        rest = text[num_committed:]
        verdict = accept([token for token, _ in candidates], rest, ends=(), budget=len(rest))
        ledger.extend_committed(verdict.tokens, candidates)
        time += 1 + token_share * (1 + len(candidates))
    return time / (len(text) * (1 + token_share))


@pytest.mark.parametrize("num_tokens", mostly_nightly([100, 30, 600]))
@pytest.mark.parametrize("token_share", [0.01, 0.07, 0.1, 0.15, 0.3, 0.5, 1.0])
def test_no_mixture_of_right_and_wrong_words_costs_more_than_a_little(token_share, num_tokens):
    text = TEXT[:num_tokens]
    costs = {
        (num_first, num_right, num_wrong): cost_over_target_only(
            misleading(num_right, num_wrong, text, num_first), token_share, text
        )
        for num_first in (0, 1)
        for num_right in range(1, 10, examples(by_day=2, at_night=1))
        for num_wrong in range(1, 16, examples(by_day=4, at_night=2))
    }
    worst = max(costs, key=lambda each: costs[each])
    assert costs[worst] <= MAX_COST, worst


@pytest.mark.parametrize(
    ("token_share", "same", "nearly_same"), [(0.01, 0.06, 0.15), (0.1, 0.14, 0.38), (0.5, 0.42, 0.72)]
)
def test_a_good_hint_saves_most_of_the_time(token_share, same, nearly_same):
    assert cost_over_target_only(" ".join(map(str, TEXT)), token_share) <= same
    words = [9_999 if index % 10 == 9 else token for index, token in enumerate(TEXT)]
    assert cost_over_target_only(" ".join(map(str, words)), token_share) <= nearly_same


def test_a_hint_that_begins_well_cannot_cost_more_than_it_saved():
    words = " ".join(map(str, TEXT[:200])) + " " + misleading(6, 10)
    assert cost_over_target_only(words, 0.1) < 1
