"""The corpus: speech by espeak-ng and flite in many voices, as one flat file of 16-bit audio and an index."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import soundfile
import soxr

from experiments.demo_pair.sentences import DIGITS, corpus

RATE = 16_000
ESPEAK_LANGUAGES = ("en-us", "en-gb")
ESPEAK_VARIANTS = "m1 m3 m4 f2 f3 Annie Michael".split()  # more voices took a longer training to learn
HELD_OUT_VARIANTS = ("f4", "m7", "klatt4", "steph", "quincy")
FLITE_VOICES = ("kal16", "slt")
HELD_OUT_FLITE = "rms"
FLITE_SHARE = 0.25
FLITE_PITCH = {"kal16": 105, "rms": 100, "slt": 170}


@dataclass(frozen=True)
class Voice:
    """A synthesiser with its settings; `pitch` is espeak's 0..99 or flite's mean F0 in hertz."""

    engine: str
    name: str
    words_per_minute: int
    pitch: int


def check_engines() -> None:
    missing = [tool for tool in ("espeak-ng", "flite") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"not found: {', '.join(missing)}; on Debian: apt install espeak-ng flite")


def draw_voice(rng: np.random.Generator, held_out: bool = False) -> Voice:
    """Draw a voice: from the training voices, or from those never trained on."""
    if rng.random() < FLITE_SHARE:
        name = HELD_OUT_FLITE if held_out else str(rng.choice(FLITE_VOICES))
        pitch = round(FLITE_PITCH[name] * rng.uniform(0.92, 1.08))
        return Voice("flite", name, int(rng.integers(130, 180)), pitch)
    language = str(rng.choice(ESPEAK_LANGUAGES))
    variant = str(rng.choice(HELD_OUT_VARIANTS if held_out else ESPEAK_VARIANTS))
    name = f"{language}+{variant}"
    return Voice("espeak-ng", name, int(rng.integers(135, 180)), int(rng.integers(38, 62)))


def _espeak(text: str, voice: Voice) -> bytes:
    settings = ["-v", voice.name, "-s", str(voice.words_per_minute), "-p", str(voice.pitch)]
    command = ["espeak-ng", *settings, "--stdin", "--stdout"]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout


def _flite(text: str, voice: Voice) -> bytes:
    stretch = f"duration_stretch={155 / voice.words_per_minute:.3f}"
    settings = ["-voice", voice.name, "--setf", stretch, "--setf", f"int_f0_target_mean={voice.pitch}"]
    with tempfile.NamedTemporaryFile(suffix=".wav") as out:
        command = ["flite", *settings, "-t", text, "-o", out.name]
        subprocess.run(command, capture_output=True, check=True)
        return Path(out.name).read_bytes()


def speak(text: str, voice: Voice) -> np.ndarray:
    data = (_flite if voice.engine == "flite" else _espeak)(text, voice)
    audio, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    return trim(soxr.resample(audio, rate, RATE))


def trim(audio: np.ndarray, floor_db: float = -42.0) -> np.ndarray:
    """Cut the quiet ends, so that a clip's bounds are the speech's bounds; peak becomes 0.5."""
    peak = float(np.abs(audio).max())
    if peak == 0:
        raise ValueError("silent clip")
    loud = np.flatnonzero(np.abs(audio) > peak * 10 ** (floor_db / 20))
    margin = RATE // 50
    clip = audio[max(0, loud[0] - margin) : loud[-1] + margin]
    return clip * np.float32(0.5 / peak)


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
