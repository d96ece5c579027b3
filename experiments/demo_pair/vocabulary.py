"""The bundled tokenizers' tokens, and phonemes, which CTC alone writes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import WhisperTokenizer

from specwhisper.model.checkpoints.names import DEMO_FOLDER

LEXICON = "phonemes.json"
STRESS = str.maketrans("", "", "ˈˌː")


@dataclass(frozen=True)
class Vocabulary:
    """The ids of the tokens that a transcript is made of; those below ``end`` are text."""

    end: int
    start: int
    english: int
    transcribe: int
    previous: int
    no_speech: int
    no_timestamps: int
    size: int

    @classmethod
    def of(cls, model: str) -> Vocabulary:
        tokenizer = load_tokenizer(model)
        names = "endoftext startoftranscript en transcribe startofprev nospeech notimestamps".split()
        return cls(*(tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in names), len(tokenizer))

    @property
    def first_timestamp(self) -> int:
        return self.no_timestamps + 1

    @property
    def head(self) -> list[int]:
        return [self.start, self.english, self.transcribe]

    def timestamp(self, seconds: float) -> int:
        return self.first_timestamp + round(seconds / 0.02)


def load_tokenizer(model: str) -> WhisperTokenizer:
    return WhisperTokenizer.from_pretrained(DEMO_FOLDER / model)


TARGET_IDS = Vocabulary.of("target")
TINY_IDS = Vocabulary.of("draft-tiny")
CANTONESE = TARGET_IDS.transcribe - 2  # `<|yue|>`, the last language before the tasks; tiny lacks it


def to_tiny(ids: torch.Tensor) -> torch.Tensor:
    """Translate tokens to the vocabulary without `<|yue|>`; -100 stays."""
    return torch.where(ids > CANTONESE, ids - 1, ids)


def to_target(ids: torch.Tensor) -> torch.Tensor:
    return torch.where(ids >= CANTONESE, ids + 1, ids)


def without_cantonese(logits: torch.Tensor) -> torch.Tensor:
    """Cut the target's logits down to the smaller vocabulary."""
    return torch.cat([logits[..., :CANTONESE], logits[..., CANTONESE + 1 :]], dim=-1)


def words(text: str) -> list[str]:
    """Split a text into lower-case words; those joined by a hyphen count apart."""
    return re.findall(r"[a-z']+", text.lower().replace("-", " "))


def write_phonemes(texts: Iterable[str], work: Path) -> None:
    """Look up every word with espeak-ng, whichever voice speaks it later."""
    known = sorted({word for text in texts for word in words(text)})
    command = ["espeak-ng", "-q", "-v", "en-us", "--ipa", "--sep=_", "--stdin"]
    said = subprocess.run(
        command, input="\n".join(f"{word}." for word in known), capture_output=True, check=True, text=True
    ).stdout.splitlines()
    spoken = [line.strip().translate(STRESS) for line in said if line.strip()]
    if len(spoken) != len(known):
        raise SystemExit(f"espeak-ng returned {len(spoken)} pronunciations for {len(known)} words")
    lexicon = {
        word: [symbol for symbol in re.split(r"[_ ]", line) if symbol]
        for word, line in zip(known, spoken, strict=True)
    }
    (work / LEXICON).write_text(json.dumps(lexicon, ensure_ascii=False), encoding="utf-8")


class Phonemes:
    """The lexicon of a corpus; symbol 0 stands between words."""

    def __init__(self, lexicon: dict[str, list[str]]) -> None:
        symbols = sorted({symbol for word in lexicon.values() for symbol in word})
        ids = {symbol: i for i, symbol in enumerate(symbols, start=1)}
        self.size = len(symbols) + 1
        self._words = {word: [ids[symbol] for symbol in sounds] for word, sounds in lexicon.items()}

    @classmethod
    def load(cls, work: Path) -> Phonemes:
        return cls(json.loads((work / LEXICON).read_text(encoding="utf-8")))

    def of(self, text: str) -> list[int]:
        spoken: list[int] = []
        for word in words(text):
            spoken += [0, *self._words[word]] if spoken else self._words[word]
        return spoken
