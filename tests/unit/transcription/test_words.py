"""Tokens are split into the words that transformers finds, whatever the tokens are."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

from experiments.common.models.checkpoints import Shape, Words, build_checkpoint, build_tokenizer
from specwhisper.languages import language_name
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.words import CLOSING, OPENING, split_into_words
from tests.nightly import examples

LANGUAGES = ("en", "de", "zh", "ja", "th", "lo", "my", "yue", "ko")
# Spaces, punctuation of both kinds, characters of one to four bytes.
CHARACTERS = st.sampled_from([" ", " ", *OPENING, *CLOSING, *"ab'#~ 1\n\téß東京にไทย가👩🚀\u200d\ufffd"])
TEXTS = st.text(st.one_of(CHARACTERS, st.characters(codec="utf-8")), max_size=40)


@cache
def tokenizer_of(words: Words) -> tuple[WhisperTokenizer, Vocabulary]:
    shape = Shape(words=words, d_model=8, heads=1, decoder_layers=1)
    return build_tokenizer(shape), build_checkpoint(shape)[1].vocabulary


def check(words: Words, tokens: list[int], language: str) -> None:
    tokenizer, vocabulary = tokenizer_of(words)
    _, theirs, _ = _combine_tokens_into_words(tokenizer, list(tokens), language_name(language))
    ours = split_into_words(vocabulary, tokens, language)
    assert [word.num_tokens for word in ours] == [len(word) for word in theirs]
    assert all(word.num_opening + word.num_closing < word.num_tokens for word in ours)


@pytest.mark.parametrize("words", ["few", "multilingual"])
@settings(deadline=None, max_examples=examples(80, 400))
@given(st.lists(st.integers(0, 50_256), max_size=24), st.sampled_from(LANGUAGES))
@example([], "en")
def test_words_of_tokens_in_any_order_equal_transformers(words: Words, tokens: list[int], language: str):
    """Most of the few are single bytes, so that few characters are whole."""
    _, vocabulary = tokenizer_of(words)
    check(words, [token % vocabulary.end_of_text for token in tokens], language)


@pytest.mark.parametrize("words", ["few", "multilingual"])
@settings(deadline=None, max_examples=examples(30, 300))
@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
def test_words_of_any_text_equal_transformers(words: Words, text: str, language: str):
    tokenizer, _ = tokenizer_of(words)
    check(words, tokenizer(text, add_special_tokens=False).input_ids, language)
