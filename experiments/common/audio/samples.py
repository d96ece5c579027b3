"""Recordings of experiments, decoded before any clock runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.decode import decode_file
from specwhisper.audio.recording import Recording, log_mel_max
from specwhisper.errors import InvalidRequest
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES, AudioChunk

BUNDLED = Path(__file__).parents[3] / "specwhisper" / "demo" / "samples"


@dataclass(frozen=True, slots=True)
class Sample:
    """A recording as canonical PCM; ``log_mel_max`` is set if it has several windows."""

    name: str
    pcm: bytes
    log_mel_max: dict[int, float]

    @classmethod
    def of(cls, name: str, pcm: bytes) -> Sample:
        sample = cls(name, pcm, {})
        return sample if sample.fits_one_window else cls(name, pcm, log_mel_max([pcm]))

    @property
    def recording(self) -> Recording:
        """The recording as an engine receives it."""
        recording = Recording(self.log_mel_max)
        recording.append(AudioChunk(0, self.pcm, is_last=True))
        return recording

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE

    @property
    def fits_one_window(self) -> bool:
        return len(self.pcm) <= WINDOW_SAMPLES * BYTES_PER_SAMPLE


def bundled() -> list[Path]:
    return sorted(path for path in BUNDLED.glob("*") if path.suffix != ".jsonl")


def load_samples(paths: Iterable[Path] | None) -> list[Sample]:
    """Decode recordings, by default the bundled ones; return the shortest first."""
    paths = list(paths or bundled())
    if not paths:
        raise InvalidRequest(f"{BUNDLED} has no bundled samples: pass recordings with --audio.")
    return sorted(
        (Sample.of(path.name, b"".join(decode_file(path))) for path in paths),
        key=lambda sample: sample.duration_s,
    )
