"""Memory of a hint from outside: of its tokens, and where all of it is searched."""

from __future__ import annotations

import json
import tracemalloc
from random import Random
from typing import NamedTuple

from experiments.common.audio.samples import BUNDLED
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.options import MAX_HINT_BYTES
from specwhisper.speculation.hints.given import MAX_TOKENS, ScriptHint
from specwhisper.transcription.hints.session import HintBuilder

WINDOW_TOKENS = 200
OTHER_TEXT = "one two three four five six seven eight nine ten"


class HintMemory(NamedTuple):
    """Bytes of main memory that the longest hint takes.

    Attributes
    ----------
    tokens : with all of its tokens.
    searched : once the audio says something else, so that all of the text was searched.
    """

    tokens: int
    searched: int


def measure_hint(seed: int = 0) -> HintMemory:
    """Measure a hint of as many bytes as one may have, of the words of the bundled recordings."""
    checkpoint = load_checkpoint("demo-target")
    tokenizer = checkpoint.tokenizer
    assert tokenizer is not None  # it is bundled

    def tokenize(text: str, *, after_space: bool = True) -> list[int]:
        return list(tokenizer.encode(" " * after_space + text))

    hints = HintBuilder(checkpoint.vocabulary, tokenize)
    text = _text(seed)
    spoken, other = tokenize(text)[:MAX_TOKENS], tokenize(OTHER_TEXT)
    for token in set(spoken) | set(other):  # words are cached by the vocabulary
        checkpoint.vocabulary.word_of(token)
    tracemalloc.start()
    try:
        hint = hints.script(text)
        for start in range(0, len(spoken), WINDOW_TOKENS):
            window = spoken[start : start + WINDOW_TOKENS]
            _follow(hint, window)
            hint.open_window(len(window))
        tokens, _ = tracemalloc.get_traced_memory()
        hint.open_later(())
        _follow(hint, other)
        searched, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return HintMemory(tokens, searched)


def _follow(hint: ScriptHint, tokens: list[int]) -> None:
    for token in tokens:
        hint.follow(token)


def _text(seed: int) -> str:
    """Return the bundled recordings' words in random order."""
    lines = (BUNDLED / "metadata.jsonl").read_text("utf-8").splitlines()
    words = [word for line in lines for word in json.loads(line)["text"].split()]
    return " ".join(Random(seed).choices(words, k=MAX_HINT_BYTES))[:MAX_HINT_BYTES]
