"""The corpus on disk: one flat file of 16-bit audio and an index of its clips."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import soundfile
import soxr

from experiments.demo_pair.sentences import DIGITS, corpus
from experiments.demo_pair.voices import RATE, Voice, check_engines, draw_voice, speak, trim

AUDIO, INDEX = "audio.i16", "clips.jsonl"
FSDD_TEST_INDICES = range(5)  # the data set's official split: recordings 0 to 4 are the test set


@dataclass(frozen=True)
class Clip:
    """One spoken sentence in the audio file."""

    start: int
    length: int
    text: str
    voice: str
    split: str


@dataclass(frozen=True)
class Corpus:
    """All clips, over the memory-mapped audio."""

    clips: list[Clip]
    audio: np.ndarray

    @classmethod
    def load(cls, work: Path) -> Corpus:
        clips = [Clip(**json.loads(line)) for line in (work / INDEX).read_text().splitlines()]
        return cls(clips, np.memmap(work / AUDIO, dtype=np.int16, mode="r"))

    def split(self, name: str) -> list[Clip]:
        return [clip for clip in self.clips if clip.split == name]

    def samples(self, clip: Clip) -> np.ndarray:
        part = self.audio[clip.start : clip.start + clip.length]
        return part.astype(np.float32) / 32768


def _say(job: tuple[str, Voice, str]) -> tuple[str, str, str, np.ndarray]:
    text, voice, split = job
    return text, f"{voice.engine} {voice.name}", split, speak(text, voice)


def _fsdd(folder: Path) -> Iterator[tuple[str, str, str, np.ndarray]]:
    for path in sorted(folder.glob("*.flac")) + sorted(folder.glob("*.wav")):
        digit, speaker, index = path.stem.split("_")
        audio, rate = soundfile.read(path, dtype="float32")
        split = "test-fsdd" if int(index) in FSDD_TEST_INDICES else "train"
        text = DIGITS[int(digit)].capitalize() + "."
        yield text, f"fsdd {speaker}", split, trim(soxr.resample(audio, rate, RATE), floor_db=-30)


def build(work: Path, sentences: int, held_out: int, seed: int, fsdd: Path | None) -> None:
    """Synthesise the corpus; half of the held-out sentences get held-out voices."""
    check_engines()
    train, test = corpus(sentences, held_out, seed)
    rng = np.random.default_rng([seed, 2])
    plan = [(text, draw_voice(rng), "train") for text in train]
    plan += [(text, draw_voice(rng), "test-sentences") for text in test[: held_out // 2]]
    plan += [(text, draw_voice(rng, held_out=True), "test-voices") for text in test[held_out // 2 :]]
    work.mkdir(parents=True, exist_ok=True)
    offset = count = 0
    with (work / AUDIO).open("wb") as out, (work / INDEX).open("w") as index, Pool() as pool:
        for spoken in (pool.imap(_say, plan, chunksize=32), _fsdd(fsdd) if fsdd else ()):
            for text, voice, split, audio in spoken:
                np.round(audio * 32767).astype(np.int16).tofile(out)
                clip = Clip(offset, len(audio), text, voice, split)
                index.write(f"{json.dumps(asdict(clip))}\n")
                offset, count = offset + len(audio), count + 1
                if count % 2000 == 0:
                    print(f"{count} clips, {offset / RATE / 3600:.1f} h", flush=True)
    print(f"{count} clips, {offset / RATE / 3600:.1f} h")
