"""Speech synthesis with espeak-ng and flite, in many voices."""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

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
