"""Room, channel and noise: what makes clean synthetic speech less clean."""

from __future__ import annotations

import numpy as np
import scipy.signal

RATE = 16_000


def change_speed(audio: np.ndarray, factor: float) -> np.ndarray:
    length = int(len(audio) / factor)
    return np.interp(np.arange(length) * factor, np.arange(len(audio)), audio).astype(np.float32)


def colored_noise(length: int, slope: float, rng: np.random.Generator) -> np.ndarray:
    """Noise of unit power whose spectrum falls with frequency as f**-slope."""
    # A few seconds, repeated: noise over 30 s would cost more than the speech.
    period = min(length, 4 * RATE)
    spectrum = np.fft.rfft(rng.standard_normal(period).astype(np.float32))
    spectrum *= (np.arange(len(spectrum)) + 20.0) ** -slope
    noise = np.fft.irfft(spectrum, period)
    noise /= noise.std() + 1e-9
    return np.resize(noise, length).astype(np.float32)


def add_noise(audio: np.ndarray, snr_db: float, rng: np.random.Generator) -> np.ndarray:
    noise = colored_noise(len(audio), rng.uniform(0, 1), rng)
    level = np.sqrt(np.mean(audio**2)) * 10 ** (-snr_db / 20)
    return audio + noise * np.float32(level)


def add_reverb(audio: np.ndarray, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """Convolve with an exponentially decaying noise tail, below the direct sound."""
    length = int(seconds * RATE)
    tail = rng.standard_normal(length) * np.exp(-6.9 * np.arange(length) / length)
    tail *= rng.uniform(0.2, 0.6) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return scipy.signal.oaconvolve(audio, tail.astype(np.float32))[: len(audio)]


def limit_band(audio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut the low and the high end, as a telephone does."""
    low, high = rng.uniform(50, 350), rng.uniform(2800, 6000)
    sections = scipy.signal.butter(4, [low, high], "bandpass", fs=RATE, output="sos")
    return scipy.signal.sosfilt(sections, audio).astype(np.float32)


def augment(audio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if rng.random() < 0.08:
        audio = add_reverb(audio, rng.uniform(0.1, 0.3), rng)
    if rng.random() < 0.08:
        audio = limit_band(audio, rng)
    if rng.random() < 0.35:
        audio = add_noise(audio, rng.uniform(8, 40), rng)
    level = 10 ** rng.uniform(-1.3, 0)
    return np.clip(audio * np.float32(level / (np.abs(audio).max() + 1e-9)), -1, 1)
