"""Languages have the codes and names that transformers has."""

import pytest
from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE

from specwhisper.languages import CODES, NAMES, language_code, language_name
from specwhisper.options import DecodingOptions


def test_languages_and_their_other_names_are_those_of_transformers():
    assert NAMES == LANGUAGES
    assert CODES == TO_LANGUAGE_CODE


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("German", "de"),
        ("castilian", "es"),
        ("ZH-hans-cn", "zh"),
        ("yue-HK", "yue"),
        (" de-CH ", "de"),
        ("de_CH.UTF-8", "de"),
        ("de-", "de"),
        ("haitian creole", "ht"),
        ("nb-NO", "no"),
        ("fil-PH", "tl"),
        ("iw-IL", "he"),
        ("cmn-Hans-CN", "zh"),
        ("klingon", "klingon"),
        ("tlh-KX", "tlh"),
        ("", ""),
        ("-", "-"),  # nothing before the region: refused, and not taken for no language
    ],
)
def test_a_language_has_any_of_its_names_in_any_case_and_a_region_is_ignored(tag, code):
    assert language_code(tag) == code
    assert DecodingOptions.greedy(language=tag).language == (code or None)


def test_a_code_without_a_name_stands_for_itself():
    assert language_code(None) is None
    assert (language_name("yue"), language_name("tlh")) == ("cantonese", "tlh")
