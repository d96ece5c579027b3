"""Text that is not final: what hypotheses agree on, what follows verified text, and whole characters."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.scripted import END, VOCABULARY
from experiments.common.models.speech import SPOKEN
from specwhisper.transcription.live_transcript import (
    NUM_STABLE,
    LiveTranscript,
    OpenText,
    continuation,
    num_before_repeats,
    words_of,
)
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER, Vocabulary
from specwhisper.types import Candidates, Commit, CompletePiece, Hypothesis, Window, WindowOpened
from tests.live import letters, token_ids

words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6)


def shown(*hypotheses: tuple, verified: str = "", language: str = "en") -> tuple[str, str]:
    """Return the stable and the tentative text after hypotheses.

    Each is first sample and text, of a complete piece if the text ends with a stop.
    """
    text = OpenText()
    text.language = language
    for start, hypothesis in hypotheses:
        whole = hypothesis.removesuffix(".")
        text.show(Hypothesis(1, start, start + 1, whole, is_complete=whole != hypothesis))
    return text.after(verified)


SAME = [(0, " one two")] * (NUM_STABLE - 1)
ONE = [*SAME, (0, " One two three.")]


@pytest.mark.parametrize(
    ("hypotheses", "verified", "expected"),
    [
        ([], "", ("", "")),
        ([(0, " one two")], "", ("", " one")),  # the last word may be cut
        ([(0, " one two.")], "", ("", " one two")),
        ([(0, " one two"), (0, " one two three")], "", ("", " one two")),
        (ONE, "", (" One two", " three")),
        ([*ONE, (0, " won two three four.")], "", (" One two", " three four")),  # one changes nothing
        ([*SAME, (0, " One, too three.")], "", (" one", " two three")),
        ([*SAME, *[(0, " won two.")] * 2], "", ("", " won two")),  # two in a row replace what others had
        # The target has a part of it, however the draft wrote that.
        (ONE, " one", (" two", " three")),
        (ONE, " Won two,", ("", " three")),
        (ONE, " One tw", ("o", " three")),  # the target has only part of the word
        (ONE, " one two three four", ("", "")),
        # Pieces follow one another.
        ([*ONE, (9, " four.")], "", (" One two", " three four")),
        ([(0, " one."), *[(9, " two.")] * NUM_STABLE], "", ("", " one two")),
        ([(9, " four."), *ONE], " one two three", ("", " four")),
    ],
)
def test_several_hypotheses_make_text_stable(hypotheses, verified, expected):
    assert shown(*hypotheses, verified=verified) == expected


def test_characters_are_the_words_of_a_language_without_spaces():
    assert words_of("日本 語", "ja") == ["日", "本", " ", "語"]
    assert shown(*[(0, "日本")] * NUM_STABLE, (0, "日本語."), language="ja") == ("日本", "語")


def test_final_pieces_and_what_a_recogniser_replaces_are_forgotten():
    text = OpenText()
    for start, hypothesis in ((0, " one"), (5, " two"), (9, " three")):
        text.show(Hypothesis(1, start, start + 1, hypothesis, is_complete=True))
    text.forget_before(5)
    assert text.after("") == ("", " two three")
    text.show_from(9, [" four"])
    text.show_from(9, [" four", " five"])
    assert text.after("") == ("", " two four five")
    text.show_from(5, [" six"])
    assert text.after("") == ("", " six")


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


@given(texts=st.lists(words, max_size=6), verified=words)
def test_text_after_verified_text_is_the_end_of_all(texts, verified):
    text = OpenText()
    for newest in texts:
        text.show(Hypothesis(1, 0, 1, "".join(f" {word}" for word in newest), is_complete=True))
        whole = "".join(text.after(""))
        assert not newest or whole.split()
        assert whole.endswith("".join(text.after(" ".join(verified))))


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


CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
WORD = "日本語"
WHOLE = ["", "", "", "日", "日", "日", "日本", "日本", "日本", "日本語"]  # by number of bytes


def of_bytes(text: bytes) -> Vocabulary:
    """Return a vocabulary whose first tokens are the bytes of a text, in order."""
    tokens = [CHARACTER_OF_BYTE[byte] for byte in text]
    return replace(VOCABULARY, tokens=(*tokens, *VOCABULARY.tokens[len(tokens) :]), max_length=448)


JAPANESE = of_bytes(WORD.encode())
TOKENS = tuple(range(len(WORD.encode())))
OPENED = WindowOpened(Window(0, 0, 3000, (END + 1,), 60))


def commit(end: int, **changes) -> Commit:
    return Commit(0, 0, TOKENS[:end], (-0.1,) * end, **changes)


@pytest.mark.parametrize("num_drafted", range(len(TOKENS) + 1))
@pytest.mark.parametrize("num_verified", range(len(TOKENS) + 1))
def test_unfinished_text_has_whole_characters(num_verified, num_drafted):
    verified, drafted = TOKENS[:num_verified], TOKENS[num_verified:num_drafted]
    text = JAPANESE.decode_unfinished(verified) + JAPANESE.decode_unfinished(drafted, after=verified)
    assert text == WHOLE[max(num_verified, num_drafted)]


def test_broken_text_is_shown_as_in_final_text_and_nothing_waits_for_its_rest():
    vocabulary = of_bytes(b"a\xff\xa5b")
    assert vocabulary.decode_unfinished(range(4)) == vocabulary.decode(range(4)) == "a\ufffd\ufffdb"
    broken_off = of_bytes(b"\xe6\x97\xe6\x9c\xac")
    assert broken_off.decode_unfinished((2, 3, 4), after=(0, 1)) == "本"


@pytest.mark.parametrize("end", range(1, len(TOKENS) + 1))
def test_a_transcript_has_incomplete_characters_once_it_is_final(end):
    builder, live = TranscriptBuilder(JAPANESE), LiveTranscript(JAPANESE)
    for transcript in (builder, live):
        transcript.observe(OPENED)
    builder.observe(commit(end - 1))
    builder.observe(Candidates(0, end - 1, 0, TOKENS[end - 1 : end]))
    assert builder.verified_text + builder.tentative_text == WHOLE[end]
    live.observe(commit(end, is_final=True))  # of a piece that grows
    assert live.verified_text == WHOLE[end]
    live.observe(OPENED)
    for transcript in (builder, live):
        (segment,) = transcript.observe(commit(end, is_final=True, piece=CompletePiece(1, 0, True)))
        assert segment.text == WORD.encode()[:end].decode(errors="replace")
