"""Compute the log-mel features of transformers' ``WhisperFeatureExtractor`` in numpy."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE

NUM_FFT = 400
NUM_FREQUENCIES = NUM_FFT // 2 + 1
DYNAMIC_RANGE = 8.0  # log10: power more than 80 dB below the log-mel maximum counts as silence
MIN_MEL_POWER = np.float32(1e-10)
SILENCE = np.log10(np.full((1, 1), MIN_MEL_POWER))  # log-mel of digital silence
BLOCK_FRAMES = 200  # a block's spectra fit into a core's cache

Floats = NDArray[np.float32]


def power_spectrogram(samples: Floats) -> Floats:
    """Return the power spectrum of every whole frame, ``[frames, 201]``.

    Frame k is ``samples[160 * k : 160 * k + 400]`` under a Hann window.
    """
    frames = np.lib.stride_tricks.sliding_window_view(samples, NUM_FFT)[::HOP_SAMPLES]
    window = _hann_window()
    power = np.empty((len(frames), NUM_FREQUENCIES), np.float32)
    for start in range(0, len(frames), BLOCK_FRAMES):
        block = slice(start, start + BLOCK_FRAMES)
        spectrum = np.fft.rfft(frames[block] * window)
        np.square(spectrum.real, out=power[block])
        power[block] += np.square(spectrum.imag)
    return power


def log_mel_power(power: Floats, num_mel_bins: int) -> Floats:
    mel = mel_filters(num_mel_bins).T @ power.T
    np.maximum(mel, MIN_MEL_POWER, out=mel)
    np.log10(mel, out=mel)
    return mel


def normalise(log_mel: Floats, log_mel_max: float) -> Floats:
    """Clamp to 80 dB below ``log_mel_max``, the largest log10 mel power, and scale."""
    return (np.maximum(log_mel, np.float32(log_mel_max - DYNAMIC_RANGE)) + np.float32(4)) / np.float32(4)


@cache
def mel_filters(num_mel_bins: int) -> Floats:
    """Return Slaney's triangular filters from 0 to 8 kHz, each of area one: ``[201, bins]``."""
    highest_mel = _BREAK_MEL + np.log(SAMPLE_RATE / 2 / _BREAK_HERTZ) * _MEL_PER_NEPER
    corners_hz = _mel_to_hertz(np.linspace(0.0, highest_mel, num_mel_bins + 2))
    frequencies_hz = np.linspace(0.0, SAMPLE_RATE / 2, NUM_FREQUENCIES)
    distances_hz = corners_hz - frequencies_hz[:, None]
    widths_hz = np.diff(corners_hz)
    rising = -distances_hz[:, :-2] / widths_hz[:-1]
    falling = distances_hz[:, 2:] / widths_hz[1:]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    filters = (triangles * 2.0 / (corners_hz[2:] - corners_hz[:-2])).astype(np.float32)
    filters.flags.writeable = False
    return filters


# Slaney's scale: linear up to 1 kHz, 15 mel; logarithmic above, 27 mel for a factor of 6.4.
_LINEAR_HERTZ_PER_MEL = 200.0 / 3.0
_BREAK_HERTZ = 1000.0
_BREAK_MEL = _BREAK_HERTZ / _LINEAR_HERTZ_PER_MEL
_MEL_PER_NEPER = 27.0 / np.log(6.4)


def _mel_to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithmic = _BREAK_HERTZ * np.exp((mel - _BREAK_MEL) / _MEL_PER_NEPER)
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HERTZ_PER_MEL, logarithmic)


@cache
def _hann_window() -> Floats:
    return np.hanning(NUM_FFT + 1)[:-1].astype(np.float32)
