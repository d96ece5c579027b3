"""Letters that all vocabularies share, and text in a vocabulary's tokens."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from specwhisper.model.translated import END, FIRST_TIME, Spelling, words
from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER, Vocabulary

CHARACTERS = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
NUM_TIMES = 1_501


def vocabulary_of(texts: list[bytes]) -> Vocabulary:
    """Return a vocabulary of all bytes and some merges."""
    merges = list(dict.fromkeys(text for text in texts if len(text) > 1))
    texts = [*(bytes([byte]) for byte in range(256)), *merges]
    end = len(texts)
    strings = ["".join(CHARACTERS[byte] for byte in text) for text in texts]
    specials = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"]
    times = [f"<|{index * 0.02:.2f}|>" for index in range(NUM_TIMES)]
    return Vocabulary(
        tokens=(*strings, *specials, *times),
        end_of_text=end,
        start_of_transcript=end + 1,
        no_timestamps=end + 2,
        timestamp_begin=end + 3,
    )


merges = st.lists(
    st.binary(min_size=2, max_size=4) | st.text(min_size=1, max_size=3).map(str.encode), max_size=40
)
letters_of_texts = st.lists(
    st.integers(0, 255) | st.integers(FIRST_TIME, FIRST_TIME + NUM_TIMES - 1) | st.just(END), max_size=60
)


@given(merges=merges, letters=letters_of_texts | st.text().map(str.encode).map(list))
def test_what_is_spelled_has_the_same_letters(merges, letters):
    spelling = Spelling(vocabulary_of(merges))
    tokens = spelling.tokens(letters)
    assert list(chain.from_iterable(map(spelling.letters, tokens))) == letters


@given(letters=letters_of_texts | st.text(" aéñ你").map(str.encode).map(list))
def test_words_cover_all_letters_and_are_split_before_spaces(letters):
    spans = list(words(letters))
    assert [i for start, end in spans for i in range(start, end)] == list(range(len(letters)))
    for start, end in spans:
        while start < end and letters[start] == ord(" "):
            start += 1
        assert ord(" ") not in letters[start:end]


def test_bytes_are_merged_in_the_order_of_ids():
    spelling = Spelling(vocabulary_of([b"he", b"th", b" t", b" th"]))
    assert spelling.word(list(b" the")) == (256 + 2, 256)  # "he" first, so "th" never is
    assert spelling.tokens([FIRST_TIME + 120])[0] == spelling.tokens([FIRST_TIME])[0] + 120


def test_what_a_vocabulary_lacks_is_left_out():
    vocabulary = vocabulary_of([])
    few = Vocabulary(
        tokens=("Ġ", "a", "b", "<|endoftext|>", "<|startoftranscript|>"),
        end_of_text=3,
        start_of_transcript=4,
        no_timestamps=None,
        timestamp_begin=5,
    )
    assert Spelling(few).tokens([*b" abc", FIRST_TIME, END]) == [0, 1, 2, 3]
    assert len(Spelling(vocabulary).tokens(list(b" abc"))) == 4
