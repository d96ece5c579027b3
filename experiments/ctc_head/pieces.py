"""Speech for training and evaluation: pieces of at most 30 s, which are a window each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.common.audio.samples import bundled
from experiments.demo_pair.data.corpus import Corpus
from experiments.demo_pair.data.windows import WINDOW_SECONDS, WindowMaker
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.decode import decode_file
from specwhisper.errors import InvalidRequest
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES

SUFFIXES = {".flac", ".m4a", ".mp3", ".oga", ".ogg", ".opus", ".wav"}
MIN_SAMPLES = SAMPLE_RATE // 5  # a shorter rest of a recording is left out
HELD_OUT_SHARE = 10  # one in so many recordings is for evaluation
# Sets of the demo pair's corpus: its split, and whether noise, rooms and telephones are left out.
CORPUS_SETS = {
    "new sentences": ("test-sentences", False),
    "new sentences, clean": ("test-sentences", True),
    "new voices": ("test-voices", False),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Canonical PCM (s16le, 16 kHz, mono) of at most 30 s."""

    name: str
    pcm: bytes

    @property
    def digest(self) -> str:
        """A name for the audio, whatever file it is from."""
        return hashlib.sha256(self.pcm).hexdigest()[:24]


def from_files(paths: Iterable[Path], num_pieces: int) -> list[Piece]:
    """Cut recordings into pieces of 30 s, up to a number of pieces."""
    pieces: list[Piece] = []
    for path in paths:
        if len(pieces) >= num_pieces:
            break
        pieces += cut(path.name, b"".join(decode_file(path)))
    return pieces[:num_pieces]


def cut(name: str, pcm: bytes) -> Iterator[Piece]:
    """Cut a recording into pieces of 30 s; the last one is the rest."""
    for start in range(0, len(pcm), WINDOW_SAMPLES * BYTES_PER_SAMPLE):
        part = pcm[start : start + WINDOW_SAMPLES * BYTES_PER_SAMPLE]
        if len(part) >= MIN_SAMPLES * BYTES_PER_SAMPLE:
            yield Piece(f"{name} at {start // BYTES_PER_SAMPLE // SAMPLE_RATE} s", part)


def recordings_of(paths: Sequence[Path] | None, seed: int) -> list[Path]:
    """Return all recordings of files and folders, by default the bundled ones, in a random order."""
    if paths is None:
        found = bundled()
    else:
        found = [
            file
            for path in paths
            for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
            if not path.is_dir() or file.suffix.lower() in SUFFIXES
        ]
    if not found:
        raise InvalidRequest("There is not a recording: pass files, or folders with audio files.")
    return [found[i] for i in np.random.default_rng([seed, 1]).permutation(len(found))]


def split(recordings: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Split recordings into those for training and those held out: no recording is in both."""
    num_held_out = max(1, len(recordings) // HELD_OUT_SHARE)
    if len(recordings) < 2:
        raise InvalidRequest("One recording is not enough: a second one must be held out.")
    return list(recordings[num_held_out:]), list(recordings[:num_held_out])


def from_corpus(corpus: Corpus, name: str, num_pieces: int, seed: int, *, clean: bool = False) -> list[Piece]:
    """Lay out full windows of a split of the demo pair's corpus; each has a seed of its own."""
    maker = WindowMaker(corpus, name)
    pieces = []
    for index in range(num_pieces):
        rng = np.random.default_rng([seed, *name.encode(), index])
        audio = maker.window(WINDOW_SECONDS, rng, clean=clean).audio
        pcm = np.round(np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes()
        pieces.append(Piece(f"{name} {index}", pcm))
    return pieces
