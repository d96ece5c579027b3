"""Compute the log-mel maximum of a whole recording, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.mel import NUM_FFT, log_mel_power, power_spectrogram
from specwhisper.audio.recording import Recording
from specwhisper.options import Padding
from specwhisper.types import HOP_SAMPLES, WINDOW_FRAMES, AudioChunk

MEL_BINS = (80, 128)  # Whisper's models have these, before large-v3 and since


def log_mel_max(
    pcm_blocks: Iterable[bytes],
    num_mel_bins: Iterable[int] = MEL_BINS,
    padding: Padding = Padding.SILENCE,
) -> dict[int, float]:
    """Return the log-mel maximum of a recording by number of mel bins."""
    if padding is Padding.ZERO:  # silence follows the last sample, in every frame that holds it
        pcm_blocks = chain(pcm_blocks, [bytes(NUM_FFT * BYTES_PER_SAMPLE)])
    num_mel_bins = tuple(num_mel_bins)
    maxima = dict.fromkeys(num_mel_bins, -np.inf)
    recording = Recording()
    start_frame = 0

    def measure_ready_windows() -> None:
        nonlocal start_frame
        while recording.window_is_ready(start_frame) and recording.window_frames(start_frame):
            power = power_spectrogram(recording.window_samples(start_frame))
            for bins in num_mel_bins:
                maxima[bins] = max(maxima[bins], float(log_mel_power(power, bins).max()))
            start_frame += WINDOW_FRAMES
            recording.discard_before(start_frame * HOP_SAMPLES)

    for pcm in pcm_blocks:
        recording.append(AudioChunk(recording.received_samples, pcm))
        measure_ready_windows()
    recording.append(AudioChunk(recording.received_samples, b"", is_last=True))
    measure_ready_windows()
    return maxima
