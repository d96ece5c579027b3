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

from experiments.demo_pair.data.sentences import DIGITS, corpus, more_corpus
from experiments.demo_pair.data.voices import RATE, Voice, check_engines, draw_voice, speak, trim

AUDIO, INDEX = "audio.i16", "clips.jsonl"
SAVED_EVERY = 2000  # clips

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
        """Open the corpus below a work folder."""
        clips = [Clip(**json.loads(line)) for line in (work / INDEX).read_text().splitlines()]
        return cls(clips, np.memmap(work / AUDIO, dtype=np.int16, mode="r"))

    def split(self, name: str) -> list[Clip]:
        """List the clips of one split."""
        return [clip for clip in self.clips if clip.split == name]

    def samples(self, clip: Clip) -> np.ndarray:
        """Return a clip's audio as float32."""
        part = self.audio[clip.start : clip.start + clip.length]
        return part.astype(np.float32) / 32768


def _say(job: tuple[str, Voice]) -> np.ndarray:
    return np.round(speak(*job) * 32767).astype(np.int16)


def _fsdd(folder: Path) -> Iterator[tuple[str, str, str, np.ndarray]]:
    for path in sorted(folder.glob("*.flac")) + sorted(folder.glob("*.wav")):
        digit, speaker, index = path.stem.split("_")
        audio, rate = soundfile.read(path, dtype="float32")
        clip = trim(soxr.resample(audio, rate, RATE), floor_db=-30)
        split = "test-fsdd" if int(index) in FSDD_TEST_INDICES else "train"
        text = DIGITS[int(digit)].capitalize() + "."
        yield text, f"fsdd {speaker}", split, np.round(clip * 32767).astype(np.int16)


def build(
    work: Path, sentences: int, held_out: int, seed: int, fsdd: Path | None, more_sentences: int = 0
) -> None:
    """Synthesise the corpus; half of the held-out sentences get held-out voices.

    ``more_sentences`` are for training as well and come last: the rest is the same with and without them.
    A build that was cut continues after the last clips that it saved.
    """
    check_engines()
    train, test = corpus(sentences, held_out, seed)
    rng = np.random.default_rng([seed, 2])
    plan = [(text, draw_voice(rng), "train") for text in train]
    plan += [(text, draw_voice(rng), "test-sentences") for text in test[: held_out // 2]]
    plan += [(text, draw_voice(rng, held_out=True), "test-voices") for text in test[held_out // 2 :]]
    plan += [(text, draw_voice(rng), "train") for text in more_corpus(more_sentences, test, seed)]
    work.mkdir(parents=True, exist_ok=True)
    saved = _saved(work)
    offset = saved[-1].start + saved[-1].length if saved else 0
    clips: list[Clip] = []
    with (work / AUDIO).open("ab") as out, (work / INDEX).open("a") as index, Pool() as pool:
        out.truncate(offset * 2)

        def save() -> None:
            out.flush()
            index.writelines(f"{json.dumps(asdict(clip))}\n" for clip in clips)
            index.flush()
            clips.clear()

        def add(text: str, voice: str, split: str, audio: np.ndarray) -> None:
            nonlocal offset
            audio.tofile(out)
            clips.append(Clip(offset, len(audio), text, voice, split))
            offset += len(audio)

        rest = plan[len(saved) :]
        spoken = pool.imap(_say, [(text, voice) for text, voice, _ in rest], chunksize=32)
        for count, ((text, voice, split), audio) in enumerate(zip(rest, spoken, strict=True), len(saved) + 1):
            add(text, f"{voice.engine} {voice.name}", split, audio)
            if count % SAVED_EVERY == 0:
                save()
                print(f"{count}/{len(plan)} clips, {offset / RATE / 3600:.1f} h", flush=True)
        if fsdd is not None and len(saved) <= len(plan):
            for item in _fsdd(fsdd):
                add(*item)
        save()
    print(f"{offset / RATE / 3600:.1f} h")


def _saved(work: Path) -> list[Clip]:
    """Read the clips of a build that was cut; the last line may be half written."""
    if not (work / INDEX).exists():
        return []
    lines = (work / INDEX).read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        (work / INDEX).write_text("".join(lines := lines[:-1]))
    return [Clip(**json.loads(line)) for line in lines]
