"""Whisper's text tokens, from the files of the package ``openai-whisper``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Literal

from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS, NON_SPEECH_TOKENS_MULTI

NUM_TEXT_TOKENS = {"multilingual": 50_257, "gpt2": 50_256}


def asset(name: Literal["multilingual", "gpt2"]) -> Path:
    """Return a vocabulary file of the package, which needs none of its dependencies."""
    for file in files("openai-whisper") or ():
        if file.name == f"{name}.tiktoken":
            return Path(str(file.locate()))
    raise FileNotFoundError(f"openai-whisper has no {name}.tiktoken")


@cache
def published_vocabulary(
    name: Literal["multilingual", "gpt2"],
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return token ids by string, and the merges."""
    return TikTokenConverter(str(asset(name))).extract_vocab_merges_from_model(str(asset(name)))


def non_speech(name: Literal["multilingual", "gpt2"]) -> tuple[int, ...]:
    published = NON_SPEECH_TOKENS if name == "gpt2" else NON_SPEECH_TOKENS_MULTI
    return tuple(token for token in published if token < NUM_TEXT_TOKENS[name])
