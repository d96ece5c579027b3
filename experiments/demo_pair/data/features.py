"""Whisper's log-mel features for batches of windows of any length."""

from __future__ import annotations

from functools import cache

import torch
from transformers.audio_utils import mel_filter_bank

RATE = 16_000
HOP = 160
FFT = 400


@cache
def _filters(mels: int) -> torch.Tensor:
    bank = mel_filter_bank(
        num_frequency_bins=FFT // 2 + 1,
        num_mel_filters=mels,
        min_frequency=0.0,
        max_frequency=8000.0,
        sampling_rate=RATE,
        norm="slaney",
        mel_scale="slaney",
    )
    return torch.from_numpy(bank).float().T.contiguous()


def log_mel(audio: torch.Tensor, mels: int, louder: torch.Tensor | None = None) -> torch.Tensor:
    """Features of a (batch, samples) tensor, as WhisperFeatureExtractor computes them.

    `louder` raises the maximum that each window's floor hangs on, as happens to a window of a long
    file, which is normalised as a whole.
    """
    spectrum = torch.stft(audio, FFT, HOP, window=torch.hann_window(FFT), return_complex=True)
    power = spectrum[..., :-1].abs().square().contiguous()
    logs = torch.clamp(_filters(mels) @ power, min=1e-10).log10()
    top = logs.amax(dim=(1, 2), keepdim=True)
    if louder is not None:
        top = top + louder[:, None, None]
    return (torch.maximum(logs, top - 8.0) + 4.0) / 4.0
