"""Languages by code and by name."""

from __future__ import annotations

from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE


def language_code(language: str | None) -> str | None:
    """Turn a name such as "German" into its code; codes, and what is unknown, pass in lower case."""
    if language is None:
        return None
    return TO_LANGUAGE_CODE.get(language.lower(), language.lower())


def language_name(code: str) -> str:
    """Give a language's English name in lower case, as OpenAI's API does; the code, where there is none."""
    return str(LANGUAGES.get(code, code))
