"""A hint from outside runs through all windows."""

from __future__ import annotations

from specwhisper.speculation.given_hint import CHUNK_CHARACTERS, MIN_AHEAD, GivenHint


def numbers(text: str) -> list[int]:
    """Tokenize a text of numbers."""
    return [int(word) for word in text.split()]


def hint_of(text: str) -> GivenHint:
    return GivenHint(text, numbers, str)


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


def test_a_lost_text_is_searched_in_all_of_it_window_by_window():
    hint = hint_of(" ".join(map(str, range(20_000))))
    position, num_windows = 15_000, 0
    while hint.position is None or hint.position < 15_000:
        hint.open_window(100)
        follow(hint, range(position, position + 100))
        position, num_windows = position + 100, num_windows + 1
    assert hint.position == position
    assert num_windows < 30


def test_a_text_has_no_special_tokens_and_one_without_spaces_is_split():
    pieces = []

    def tokenize(text: str) -> list[int]:
        pieces.append(text)
        return []

    GivenHint("a <|endoftext|>\nb", tokenize, str)
    GivenHint("字" * 3 * CHUNK_CHARACTERS, tokenize, str)
    assert pieces == ["a < |endoftext|> b", "字" * CHUNK_CHARACTERS, "字" * 2 * CHUNK_CHARACTERS]
