"""Pieces of live text are joined to utterances; deltas of a streamed transcript are its text."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import TargetUnavailable
from specwhisper.types import Segment, Word
from specwhisper_client.live_transcription import Utterances, joined, whole_utterances
from specwhisper_client.updates import Deltas, Update


def piece(text: str, utterance: int = 1, at_s: float = 0.0, *, is_last: bool = False, **more) -> Segment:
    segment = Segment(at_s, at_s + 1, (len(text),), text, 0.5)
    return replace(segment, utterance=utterance, is_utterance_end=is_last, **more)


def test_a_new_utterance_ends_the_one_before_it_whose_end_was_lost():
    utterances = Utterances()
    whole = utterances.add([piece(" a"), piece(" b", 2), piece(" c", 2, is_last=True), piece(" d", 3)])
    assert [each.text for each in whole] == [" a", " b c"]
    assert [each.text for each in utterances.finish()] == [" d"]


def test_an_utterance_without_text_is_left_out():
    utterances = Utterances()
    assert utterances.add([piece("", is_last=True), piece(" ", 2, is_last=True)]) == []
    assert utterances.finish() == []
    (whole,) = utterances.add([piece(" a", 3), piece("", 3, at_s=9.0, is_last=True)])
    assert (whole.text, whole.end_s) == (" a", 1.0), "the silence after the text does not count"


def test_a_whole_utterance_has_means_of_scores_and_the_highest_temperature():
    words = [Word(0.0, 1.0, " a", 0.1), Word(1.0, 2.0, " b", 0.2)]
    one = piece(
        " a", words=(words[0],), confidence=0.2, no_speech_prob=0.1, temperature=0.4, avg_logprob=-2.0
    )
    other = piece(" b", words=(words[1],), confidence=0.4, no_speech_prob=0.3, avg_logprob=-1.0, is_last=True)
    whole = joined([one, replace(piece(""), confidence=0.0), other])
    assert whole.confidence == pytest.approx(0.3)
    assert whole.no_speech_prob == pytest.approx(0.2)
    assert (whole.temperature, whole.avg_logprob) == (0.4, -1.0)
    assert (whole.words, whole.tokens) == (tuple(words), (2, 0, 2))
    assert joined([piece(" a", no_speech_prob=None)]).no_speech_prob is None


PIECES = st.lists(st.tuples(st.sampled_from(["", " ", " a", "b"]), st.booleans()), max_size=30)


def numbered(texts: list[tuple[str, bool]]) -> list[Segment]:
    pieces, number = [], 1
    for text, is_last in texts:
        pieces.append(piece(text, number, is_last=is_last))
        number += is_last
    return pieces


@given(PIECES, st.integers(1, 5))
def test_no_text_is_lost_or_repeated_however_it_arrives(texts, at_once):
    pieces, utterances, whole = numbered(texts), Utterances(), []
    for start in range(0, len(pieces), at_once):
        whole += utterances.add(pieces[start : start + at_once])
    whole += utterances.finish()
    joined_text = "".join(each.text for each in whole)
    assert joined_text.replace(" ", "") == "".join(text for text, _ in texts).replace(" ", "")
    numbers = [each.utterance for each in whole]
    assert numbers == sorted(set(numbers))
    assert all(each.is_utterance_end for each in whole)


async def stream(updates: list[Update]) -> AsyncIterator[Update]:
    for update in updates:
        yield update


async def test_final_text_of_an_open_utterance_is_shown_as_verified():
    updates = [
        Update((piece(" Hello"),), " there", " you", " all"),
        Update((piece(" there", at_s=1.0, is_last=True), piece(" By", 2, at_s=2.0)), "e", received_s=3.0),
        Update((), "es", "", ".", is_unverified=True),
    ]
    seen = [update async for update in whole_utterances(stream(updates))]
    texts = [("".join(s.text for s in each.segments), each.verified_text, each.text) for each in seen]
    assert texts == [
        ("", " Hello there", " Hello there you all"),
        (" Hello there", " Bye", " Bye"),
        ("", " Byes", " Byes."),
        (" By", "", ""),  # the audio ends within the utterance
    ]
    assert (seen[1].received_s, seen[2].is_unverified) == (3.0, True)


async def test_final_text_of_an_open_utterance_outlives_an_error():
    async def failing() -> AsyncIterator[Update]:
        yield Update((piece(" Hello"),))
        raise TargetUnavailable("It is gone.")

    seen = whole_utterances(failing())
    assert (await anext(seen)).settled_text == " Hello"
    assert [segment.text for segment in (await anext(seen)).segments] == [" Hello"]
    with pytest.raises(TargetUnavailable):
        await anext(seen)


letters = st.text(alphabet=" \nab", max_size=6)


@given(st.lists(st.tuples(st.lists(letters, max_size=2), letters | st.just("")), max_size=6))
def test_deltas_are_the_text_and_settled_text_that_changes_is_taken_back(updates):
    deltas, shown, final, has_settled = Deltas(), "", "", False
    for texts, settled in updates:
        final += "".join(texts)
        retracted, delta = deltas.add([Segment(0.0, 1.0, (), text) for text in texts], settled)
        assert shown.endswith(retracted) and not (retracted and not has_settled)
        assert not (retracted and delta and retracted[0] == delta[0]), "no more than what changed"
        assert not delta.isspace()
        shown = shown[: len(shown) - len(retracted)] + delta
        assert shown == deltas.sent == (final + settled).strip()
        has_settled = has_settled or bool(settled)
