"""Languages by code and by name."""

from __future__ import annotations

from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE


def language_code(language: str | None) -> str | None:
    """Turn a name such as "German" into its code; codes, and what is unknown, pass in lower case."""
    if language is None:
        return None
    return TO_LANGUAGE_CODE.get(language.lower(), language.lower())
