"""Phonemes of words: the symbols that the encoder's CTC head learns.

English spelling shows little of the sound; the decoder learns it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

FILE = "phonemes.json"
STRESS = str.maketrans("", "", "ˈˌː")


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
    (work / FILE).write_text(json.dumps(lexicon, ensure_ascii=False), encoding="utf-8")


class Phonemes:
    """The lexicon of a corpus; symbol 0 stands between words."""

    def __init__(self, lexicon: dict[str, list[str]]) -> None:
        symbols = sorted({symbol for word in lexicon.values() for symbol in word})
        ids = {symbol: i for i, symbol in enumerate(symbols, start=1)}
        self.size = len(symbols) + 1
        self._words = {word: [ids[symbol] for symbol in sounds] for word, sounds in lexicon.items()}

    @classmethod
    def load(cls, work: Path) -> Phonemes:
        """Read the lexicon below a work folder."""
        return cls(json.loads((work / FILE).read_text(encoding="utf-8")))

    def of(self, text: str) -> list[int]:
        """Write a text in phonemes."""
        spoken: list[int] = []
        for word in words(text):
            spoken += [0, *self._words[word]] if spoken else self._words[word]
        return spoken
