"""A language's end is found at the pause where another one begins."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.scripted import END, MULTILINGUAL, TIME
from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.transcription.language_search import (
    ENOUGH_FRAMES,
    MAX_UNDETECTED_FRAMES,
    SURE,
    among,
    choose,
    cuts,
    join_short,
    search,
)
from specwhisper.transcription.sequential_windows import LanguageWindows
from specwhisper.types import Span

CODES = ("en", "fr", "zh")
LONG_FRAMES = 500


def probs_of(language: str, others: float = 0.05) -> dict[str, float]:
    return {code: 1 - others * 2 if code == language else others for code in CODES}


def found(bounds: Sequence[int], languages: Sequence[str], before: str | None) -> tuple[str, int, int]:
    """Search with a detector that is right; return language, end and how often it was asked."""
    searching = search(bounds, before)
    at, count = next(searching), 0
    while True:
        count += 1
        try:
            at = searching.send(probs_of(languages[bounds.index(at[0])]))
        except StopIteration as ended:
            return *ended.value[:2], count


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[int], list[str]]:
    """Draw pieces in several languages, of which each is spoken for five seconds or longer."""
    bounds, languages = [draw(st.integers(0, 10_000))], []
    for language in draw(st.lists(st.sampled_from(CODES), min_size=1, max_size=5)):
        begun = bounds[-1]
        while bounds[-1] - begun <= LONG_FRAMES:
            bounds.append(bounds[-1] + draw(st.integers(ENOUGH_FRAMES, 700)))
            languages.append(language)
    return bounds, languages


@given(recordings(), st.sampled_from([None, *CODES]))
def test_a_language_ends_where_another_begins(recording, before):
    bounds, languages = recording
    language, end_frame, count = found(bounds, languages, before)
    end = next((i for i, language in enumerate(languages) if language != languages[0]), len(languages))
    assert (language, end_frame) == (languages[0], bounds[end])
    assert count <= len(languages)


def test_not_every_piece_of_one_language_is_looked_at():
    bounds = list(range(0, 3001, 100))
    *_, count = found(bounds, ["fr"] * 30, None)
    assert count == 1 + -(-29 * 100 // (MAX_UNDETECTED_FRAMES + 100))


def test_only_a_sure_language_replaces_the_one_before():
    assert choose({"en": 0.4, "fr": 0.35, "zh": 0.25}, "fr") == "fr"
    assert choose({"en": SURE, "fr": 1 - SURE, "zh": 0.0}, "fr") == "en"
    assert choose({"en": 0.4, "fr": 0.35, "zh": 0.25}, None) == "en"
    assert choose({"en": 0.4, "zh": 0.6}, "fr") == "zh", "it is not allowed any more"


def test_a_third_language_between_two_is_found():
    searching = search([0, 300, 400, 700], "fr")
    next(searching)
    assert searching.send(probs_of("fr")) == (400, 300)
    assert searching.send(probs_of("zh")) == (300, 100)
    with pytest.raises(StopIteration) as ended:
        searching.send(probs_of("en"))
    assert ended.value.value[:2] == ("fr", 300)


@given(st.lists(st.integers(1, 400), max_size=40))
def test_joined_pieces_have_enough_speech_and_are_cut_in_pauses(lengths):
    bounds = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    spoken = [Span(start, stop) for start, stop in list(pairwise(bounds))[::2]]
    joined = join_short(spoken)
    assert len(joined) <= 1 or all(piece.stop - piece.start >= ENOUGH_FRAMES for piece in joined)
    assert {piece.start for piece in joined} <= {piece.start for piece in spoken}
    assert [piece.start for piece in joined[:1]] == [piece.start for piece in spoken[:1]]
    for cut in cuts(joined):
        assert not any(piece.start < cut < piece.stop for piece in spoken)


def test_a_short_piece_joins_its_neighbour_over_the_shorter_pause():
    spoken = [Span(0, 200), Span(230, 260), Span(280, 500)]
    assert join_short(spoken) == [Span(0, 200), Span(230, 500)]


@given(st.dictionaries(st.sampled_from(CODES), st.floats(0, 1), min_size=3))
def test_probabilities_are_those_among_the_allowed_languages(probs):
    assert among(probs, ()) == probs
    known = among(probs, ("fr", "zh"))
    assert list(known) == ["fr", "zh"]
    assert sum(known.values()) == pytest.approx(1) or not probs["fr"] + probs["zh"]


def test_languages_are_read_from_a_list_or_a_text():
    assert DecodingOptions(languages="English, fr,fr-CA").languages == ("en", "fr")
    assert DecodingOptions(languages=["zh", "de"]).languages == ("zh", "de")
    alone = DecodingOptions(languages="de")
    assert (alone.language, alone.languages) == ("de", ())
    with pytest.raises(InvalidRequest, match="language and languages exclude each other"):
        DecodingOptions(languages="en,fr", language="en")
    for wrong in (7, ["en", 7]):
        with pytest.raises(InvalidRequest, match=r"languages is .*: it must be languages, as 'en,fr'"):
            DecodingOptions(languages=wrong)


def test_a_piece_with_too_little_speech_has_the_language_before():
    searching = search([0, 50, 400], "fr", detects_first=False)
    assert next(searching) == (50, 350)
    with pytest.raises(StopIteration) as ended:
        searching.send(probs_of("zh"))
    assert ended.value.value[:2] == ("fr", 50)
    with pytest.raises(StopIteration) as ended:
        next(search([0, 50], "fr", detects_first=False))
    assert ended.value.value == ("fr", 50, {"fr": 1.0})


def test_the_rest_of_a_window_is_not_joined_with_what_follows_it():
    """Its model has ended the text a little before the last sound; then another language begins."""
    spoken = [(0, 480_000)]
    made = LanguageWindows(MULTILINGUAL, DecodingOptions(languages="en,de"), voice=lambda pcm: spoken)
    made.find_speech(b"", 3000)
    made.detected({"en": 0.9, "de": 0.1})
    window = made.open(3000)
    made.close(window, [TIME, 1, TIME + 1475, TIME + 1475, END])
    assert (made.next_frame, made.language) == (2950, None)
    spoken[:] = [(0, 6_000), (9_600, 400_000)]
    made.find_speech(b"", 2600)
    assert made.language_span(2600) == (2999, 2551)
    made.detected({"en": 0.1, "de": 0.9})
    assert (made.language, made.language_span(2600)) == ("en", None)
    made.close(made.open(49), [TIME, END])
    made.find_speech(b"", 2551)
    made.detected({"en": 0.1, "de": 0.9})
    assert (made.next_frame, made.language) == (2999, "de")
