"""The sample recordings: texts written for them, spoken and saved, the longest ones compressed with loss."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import soundfile

from experiments.demo_pair.data.augment import add_noise
from experiments.demo_pair.data.voices import RATE, Voice, check_engines, speak

SCRIPT = Path(__file__).with_name("samples.json")


def parse_voice(text: str) -> Voice:
    """Read "engine name words-per-minute pitch"."""
    engine, name, speed, pitch = text.split()
    return Voice(engine, name, int(speed), int(pitch))


def sentences_of(text: str) -> list[str]:
    """Split a text at full stops and question marks."""
    return [sentence.strip() for sentence in re.findall(r"[^.?]+[.?]", text)]


def record(lines: list[list[str]], rng: np.random.Generator) -> np.ndarray:
    """Speak lines sentence by sentence, with pauses between them."""
    parts = [np.zeros(int(0.3 * RATE), np.float32)]
    for voice, text in lines:
        for sentence in sentences_of(text):
            parts.append(speak(sentence, parse_voice(voice)))
            parts.append(np.zeros(int(rng.uniform(0.25, 0.6) * RATE), np.float32))
    return np.concatenate(parts)


def make_samples(folder: Path, seed: int) -> None:
    """Write the recordings and metadata.jsonl with the text of each, as datasets have it."""
    check_engines()
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 7])
    index = []
    for sample in json.loads(SCRIPT.read_text(encoding="utf-8")):
        audio = record(sample["lines"], rng)
        if "noise_db" in sample:
            audio = add_noise(audio, sample["noise_db"], rng)
        audio = np.clip(audio, -1, 1)
        with soundfile.SoundFile(folder / sample["file"], "w", RATE, 1) as file:
            for start in range(0, len(audio), RATE):  # libsndfile's Vorbis encoder fails on long pieces
                file.write(audio[start : start + RATE])
        voices = list(dict.fromkeys(voice for voice, _ in sample["lines"]))
        index.append(
            {
                "file_name": sample["file"],
                "title": sample["title"],
                "text": " ".join(text for _, text in sample["lines"]),
                "voice": "; ".join(voices),
                "seconds": round(len(audio) / RATE, 2),
            }
        )
    lines = (json.dumps(entry, ensure_ascii=False) + "\n" for entry in index)
    (folder / "metadata.jsonl").write_text("".join(lines), encoding="utf-8")
