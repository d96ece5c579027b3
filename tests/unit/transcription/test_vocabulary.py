"""A vocabulary builds prompts and turns ids into text as the tokenizer does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.checkpoints import Shape, build_tokenizer
from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions, Task
from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER, Vocabulary

SHAPE = Shape()
TOKENIZER = build_tokenizer(SHAPE)
TOKENS = tuple(TOKENIZER.convert_ids_to_tokens(list(range(len(TOKENIZER)))))
ID = {token: i for i, token in enumerate(TOKENS)}
END = ID["<|endoftext|>"]
VOCABULARY = Vocabulary(
    tokens=TOKENS,
    end_of_text=END,
    start_of_transcript=ID["<|startoftranscript|>"],
    no_timestamps=ID["<|notimestamps|>"],
    timestamp_begin=ID["<|0.00|>"],
    languages={"en": ID["<|en|>"], "de": ID["<|de|>"]},
    tasks={"transcribe": ID["<|transcribe|>"], "translate": ID["<|translate|>"]},
)
ENGLISH = replace(VOCABULARY, languages={}, tasks={})
GERMAN = replace(VOCABULARY, languages={"de": ID["<|de|>"]})
TRANSCRIBER = replace(VOCABULARY, tasks={"transcribe": ID["<|transcribe|>"]})
UNTIMED = replace(VOCABULARY, no_timestamps=None, timestamp_begin=len(TOKENS))


def named(prompt: tuple[int, ...]) -> list[str]:
    return [TOKENS[i].strip("<|>") for i in prompt]


class TestPrompt:
    @pytest.mark.parametrize(
        ("vocabulary", "options", "expected"),
        [
            (VOCABULARY, {"language": "de", "task": Task.TRANSLATE}, ["de", "translate"]),
            (VOCABULARY, {"language": "en", "timestamps": False}, ["en", "transcribe", "notimestamps"]),
            (UNTIMED, {"language": "en", "timestamps": False}, ["en", "transcribe"]),
            (ENGLISH, {}, []),
            (ENGLISH, {"timestamps": False}, ["notimestamps"]),
        ],
    )
    def test_it_names_language_task_and_whether_there_are_times(self, vocabulary, options, expected):
        prompt = vocabulary.prompt(DecodingOptions.greedy(**options))
        assert named(prompt) == ["startoftranscript", *expected]

    @pytest.mark.parametrize(
        ("vocabulary", "options", "problem"),
        [
            (VOCABULARY, {"language": "xx"}, "'xx' is unknown to this model; it has: de, en"),
            (VOCABULARY, {"languages": "en,xx"}, "Language 'xx' is unknown to this model; it has: de, en"),
            (TRANSCRIBER, {"task": Task.TRANSLATE}, "'translate' is unknown"),
            (ENGLISH, {"language": "de"}, "English-only"),
            (ENGLISH, {"languages": "en,de"}, "English-only"),
            (ENGLISH, {"task": Task.TRANSLATE}, "English-only"),
            (ENGLISH, {"multilingual": True}, "one language: leave multilingual out"),
            (GERMAN, {"multilingual": True}, "one language: leave multilingual out"),
            (UNTIMED, {}, "no timestamps: turn them off"),
        ],
    )
    def test_what_a_model_lacks_is_refused(self, vocabulary, options, problem):
        with pytest.raises(UnsupportedOption, match=problem):
            vocabulary.prompt(DecodingOptions.greedy(**options))

    def test_several_languages_that_a_model_has_are_not_refused(self):
        VOCABULARY.check(DecodingOptions(languages="en,de"))


class TestText:
    @given(st.lists(st.integers(0, END - 1), max_size=20))
    def test_text_equals_the_tokenizers(self, ids):
        assert VOCABULARY.decode(ids) == TOKENIZER.decode(ids, clean_up_tokenization_spaces=False)

    def test_special_tokens_and_times_are_left_out(self):
        ids = TOKENIZER("the fox", add_special_tokens=False).input_ids
        timed = [ID["<|0.00|>"], *ids, ID["<|1.00|>"], END]
        assert VOCABULARY.decode(timed) == "the fox"

    def test_broken_characters_are_replaced(self):
        character = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
        pair = [ID[character[byte]] for byte in "ä".encode()]
        assert VOCABULARY.decode(pair) == "ä"
        assert VOCABULARY.decode(pair[:1]) == "\N{REPLACEMENT CHARACTER}"
        assert VOCABULARY.token_bytes(pair[:1]) == b"\xc3"


def test_equal_vocabularies_have_equal_digests_and_others_have_not():
    reordered = dict(reversed(VOCABULARY.languages.items()))
    assert VOCABULARY.digest == replace(VOCABULARY, languages=reordered).digest
    changes = (
        *({"tokens": (*TOKENS[:-1], "other")}, {"languages": {}}, {"suppress": (1,)}),
        *({name: 40} for name in ("end_of_text", "max_initial_timestamp", "max_length", "no_speech")),
    )
    for change in changes:
        assert replace(VOCABULARY, **change).digest != VOCABULARY.digest, change
