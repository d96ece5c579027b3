"""Languages by code and by name."""

from __future__ import annotations

from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE


def language_code(language: str | None) -> str | None:
    """Return the code of a name such as "German"; others are only lowercased."""
    if language is None:
        return None
    return TO_LANGUAGE_CODE.get(language.lower(), language.lower())


def language_name(code: str) -> str:
    """Return a code's English name in lower case, or the code if it has none."""
    return str(LANGUAGES.get(code, code))
