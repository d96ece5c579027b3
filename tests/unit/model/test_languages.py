"""Languages have the codes and names that transformers has."""

from __future__ import annotations

import pytest
from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE

from specwhisper.model.checkpoints.languages import CODES, NAMES, language_code, language_name


def test_languages_and_their_other_names_are_those_of_transformers():
    assert NAMES == LANGUAGES
    assert CODES == TO_LANGUAGE_CODE


@pytest.mark.parametrize(
    ("name", "code"),
    [("German", "de"), ("DE", "de"), ("castilian", "es"), ("klingon", "klingon"), (None, None)],
)
def test_a_language_may_be_named_in_any_case(name, code):
    assert language_code(name) == code


def test_a_code_without_a_name_stands_for_itself():
    assert (language_name("yue"), language_name("tlh")) == ("cantonese", "tlh")
