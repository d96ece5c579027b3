"""Sounds without speech for which recognisers are known to write text."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
DURATION_S = 6.0
NUM_SAMPLES = int(DURATION_S * RATE)

Sound = NDArray[np.float64]
TIME_S = np.arange(NUM_SAMPLES) / RATE


def coloured(exponent: float, seed: int) -> Sound:
    """Return noise by the exponent of its falling power: 0 white, 1 pink, 2 brown."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(0, 1, NUM_SAMPLES))
    frequencies = np.maximum(np.fft.rfftfreq(NUM_SAMPLES, 1 / RATE), 20.0)
    return unit(np.fft.irfft(spectrum / frequencies ** (exponent / 2), NUM_SAMPLES))


def unit(sound: Sound) -> Sound:
    """Scale a sound to a peak of 1."""
    return sound / max(1e-9, float(np.abs(sound).max()))


def hum(frequency: float, harmonics: int) -> Sound:
    """Return mains hum with harmonics, as of badly shielded cables."""
    return unit(sum(np.sin(2 * np.pi * frequency * n * TIME_S) / n for n in range(1, harmonics + 1)))


def notes(seed: int, *, voices: int, tempo_s: float) -> Sound:
    """Return chords of decaying tones with overtones, as of a piano or a guitar."""
    rng = np.random.default_rng(seed)
    sound = np.zeros(NUM_SAMPLES)
    for start_s in np.arange(0, DURATION_S - tempo_s, tempo_s):
        since_s = np.maximum(TIME_S - start_s, 0)
        for _ in range(voices):
            pitch = 220 * 2 ** (rng.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
            tone = sum(np.sin(2 * np.pi * pitch * n * since_s) / n**1.5 for n in range(1, 6))
            sound += np.where(TIME_S >= start_s, tone * np.exp(-3 * since_s), 0)
    return unit(sound)


def drums(seed: int, tempo_s: float) -> Sound:
    """Return bursts of noise at a steady beat."""
    noise = coloured(0.5, seed)
    return unit(noise * np.exp(-20 * (TIME_S % tempo_s)))


def clicks(seed: int, per_second: float) -> Sound:
    """Return random clicks, as of a keyboard or of rain on a window."""
    rng = np.random.default_rng(seed)
    sound = np.zeros(NUM_SAMPLES)
    sound[rng.random(NUM_SAMPLES) < per_second / RATE] = 1.0
    return unit(np.convolve(sound, np.exp(-np.arange(80) / 10), "same"))


def sweep(low: float, high: float) -> Sound:
    """Return a tone that rises and falls, as of a siren."""
    frequency = low + (high - low) * (1 + np.sin(2 * np.pi * 0.4 * TIME_S)) / 2
    return np.sin(2 * np.pi * np.cumsum(frequency) / RATE)


def beeps(frequency: float) -> Sound:
    """Return beeps of half a second, as of a busy telephone line."""
    return np.sin(2 * np.pi * frequency * TIME_S) * (TIME_S % 1.0 < 0.5)


def quantised(sound: Sound, level: float) -> bytes:
    """Return a sound of the given peak level as canonical PCM."""
    return np.rint(np.clip(sound * level, -1, 1) * 32767).astype("<i2").tobytes()


NOISES: dict[str, Callable[[], tuple[Sound, float]]] = {
    "digital silence": lambda: (np.zeros(NUM_SAMPLES), 1.0),
    "the last bit flickers": lambda: (coloured(0, 1), 1 / 32767),
    "a constant offset": lambda: (np.ones(NUM_SAMPLES), 0.2),
    "white noise": lambda: (coloured(0, 2), 0.6),
    "quiet pink noise": lambda: (coloured(1, 3), 0.02),
    "brown noise": lambda: (coloured(2, 4), 0.9),
    "hum of 50 Hz": lambda: (hum(50, 8), 0.3),
    "a loud hum": lambda: (hum(50, 20), 0.9),
    "slow chords": lambda: (notes(5, voices=3, tempo_s=1.0), 0.4),
    "fast notes": lambda: (notes(6, voices=1, tempo_s=0.2), 0.4),
    "fast drums": lambda: (drums(9, 0.18), 0.7),
    "keys": lambda: (clicks(11, 6), 0.5),
    "rain": lambda: (clicks(12, 400), 0.4),
    "a siren": lambda: (sweep(500, 1_500), 0.4),
    "a busy line": lambda: (beeps(425), 0.4),
}


def noises() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the canonical PCM of each sound."""
    for name, make in NOISES.items():
        sound, level = make()
        yield name, quantised(sound, level)
