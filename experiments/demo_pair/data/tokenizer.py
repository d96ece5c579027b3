"""A small byte-level BPE vocabulary below Whisper's special tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, ByteLevelBPETokenizer
from transformers import WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import LANGUAGES

TEXT_TOKENS = 512
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
TIMESTAMPS = 1501


def special_tokens(languages: Iterable[str]) -> list[str]:
    """Whisper's special tokens in large-v3's order, without the timestamps."""
    names = ["endoftext", "startoftranscript", *languages, *TASKS]
    return [f"<|{name}|>" for name in names]


def languages(with_cantonese: bool) -> list[str]:
    """large-v3's hundred languages, or the 99 of the models before it."""
    return [code for code in LANGUAGES if with_cantonese or code != "yue"]


def train_bpe(texts: Iterable[str], folder: Path) -> None:
    """Learn the text tokens and write vocab.json and merges.txt."""
    bpe = ByteLevelBPETokenizer(add_prefix_space=False)
    bpe.train_from_iterator(
        (" " + text for text in texts),
        vocab_size=TEXT_TOKENS,
        min_frequency=2,
        show_progress=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    bpe.save_model(str(folder))


def build_tokenizer(folder: Path, with_cantonese: bool) -> WhisperTokenizer:
    """Whisper's tokenizer over the learnt text tokens."""
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if not line.startswith("#version")]
    specials = special_tokens(languages(with_cantonese))
    tokenizer = WhisperTokenizer(vocab=vocab, merges=merges)
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False, special=True) for token in specials],
        special_tokens=True,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": specials[1:], "pad_token": "<|endoftext|>"})
    # Whisper's timestamps are added tokens, but not "special" ones: decoding may show them.
    tokenizer.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>", normalized=False) for i in range(TIMESTAMPS)])
    return tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """The ids a transcript is made of."""

    end: int
    start: int
    english: int
    transcribe: int
    previous: int
    no_speech: int
    no_timestamps: int
    first_timestamp: int
    size: int

    @classmethod
    def of(cls, with_cantonese: bool) -> Vocabulary:
        """Lay the ids out with or without `<|yue|>`."""
        specials = special_tokens(languages(with_cantonese))
        ids = {token: TEXT_TOKENS + i for i, token in enumerate(specials)}
        first_timestamp = TEXT_TOKENS + len(specials)
        return cls(
            ids["<|endoftext|>"],
            ids["<|startoftranscript|>"],
            ids["<|en|>"],
            ids["<|transcribe|>"],
            ids["<|startofprev|>"],
            ids["<|nospeech|>"],
            ids["<|notimestamps|>"],
            first_timestamp,
            first_timestamp + TIMESTAMPS,
        )

    def timestamp(self, seconds: float) -> int:
        """Return the token of a time within the window."""
        return self.first_timestamp + round(seconds / 0.02)
