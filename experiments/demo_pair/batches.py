"""Batches of windows: audio, tokens and labels, made in a background thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from transformers.audio_utils import mel_filter_bank

from experiments.demo_pair import processes
from experiments.demo_pair.corpus import RATE
from experiments.demo_pair.windows import (
    WINDOW_SECONDS,
    Segment,
    Transcriber,
    Transcript,
    Window,
    WindowMaker,
)

HOP, FFT = 160, 400
SECONDS_PER_BATCH = 112.0
TIMESTAMPS_SHARE = 0.7
PROMPT_SHARE = 0.15
LATE_SHARE = 0.3
SHORT_SHARE = 0.2  # share of windows of 30 s whose speech is short
POSITION_SECONDS = 0.02


@cache
def _filters(mels: int) -> torch.Tensor:
    bank = mel_filter_bank(FFT // 2 + 1, mels, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(bank).float().T.contiguous()


def log_mel(audio: torch.Tensor, mels: int, louder: torch.Tensor) -> torch.Tensor:
    """Return the features of windows of any length, as WhisperFeatureExtractor computes them.

    `louder` raises the maximum that each window's floor hangs on, as happens to a window of a long
    file, which is normalised as a whole.
    """
    spectrum = torch.stft(audio, FFT, HOP, window=torch.hann_window(FFT), return_complex=True)
    power = spectrum[..., :-1].abs().square().contiguous()
    logs = torch.clamp(_filters(mels) @ power, min=1e-10).log10()
    top = logs.amax(dim=(1, 2), keepdim=True) + louder[:, None, None]
    return (torch.maximum(logs, top - 8.0) + 4.0) / 4.0


@dataclass(frozen=True)
class Batch:
    audio: torch.Tensor
    louder: torch.Tensor
    zero_from: list[int]
    tokens: torch.Tensor
    labels: torch.Tensor
    phonemes: list[list[int]]
    complete: torch.Tensor
    offsets: torch.Tensor
    times: torch.Tensor
    is_plain: bool
    from_start: bool

    def features(self, mels: int) -> torch.Tensor:
        """Log-mel features, with some windows' padding as transformers pads a long file's end."""
        features = log_mel(self.audio, mels, self.louder)
        for row, start in zip(features, self.zero_from, strict=True):
            row[:, start:] = 0.0
        return features


def collate(
    windows: list[Window],
    transcripts: list[Transcript],
    offsets: list[int],
    rng: np.random.Generator,
    end: int,
    is_plain: bool,
    from_start: bool,
) -> Batch:
    length = max(len(t.tokens) for t in transcripts) - 1
    tokens = torch.full((len(transcripts), length), end)
    labels = torch.full((len(transcripts), length), -100)
    times = torch.full((len(transcripts), length), torch.nan)
    for row, transcript in enumerate(transcripts):
        ids = torch.tensor(transcript.tokens)
        tokens[row, : len(ids) - 1] = ids[:-1]
        labels[row, transcript.given - 1 : len(ids) - 1] = ids[transcript.given :]
        times[row, transcript.given - 1 : len(ids) - 1] = torch.tensor(transcript.times[transcript.given :])
    audio = torch.from_numpy(np.stack([window.audio for window in windows]))
    frames = audio.shape[1] // HOP
    zero_from = [frames] * len(windows)
    for row, window in enumerate(windows):
        if rng.random() < 0.15:
            sound = np.flatnonzero(window.audio)
            zero_from[row] = min(frames, (int(sound[-1]) // HOP + 2) if len(sound) else frames)
    louder = np.where(rng.random(len(windows)) < 0.3, rng.uniform(0, 0.8, len(windows)), 0.0)
    return Batch(
        audio,
        torch.from_numpy(louder).float(),
        zero_from,
        tokens,
        labels,
        [t.phonemes for t in transcripts],
        torch.tensor([not window.is_cut for window in windows]),
        torch.tensor(offsets),
        times,
        is_plain,
        from_start,
    )


def make_batch(
    maker: WindowMaker,
    transcriber: Transcriber,
    limit: float,
    rng: np.random.Generator,
    plain: bool = False,
    anywhere: bool = False,
    from_start: bool = False,
) -> Batch:
    """Draw windows of at most `limit` seconds; `plain` ones lack noise and timestamps.

    Rows with `anywhere` stand for any part of a full window, which the transcript does not show.
    Those `from_start` have nothing said before them.
    """
    windows, transcripts, offsets = [], [], []
    # One long transcript makes the whole batch long, so the invented beginnings come in batches of their own.
    late = rng.random() < LATE_SHARE and not from_start
    for _ in range(max(1, round(SECONDS_PER_BATCH / processes.count() / limit))):
        # A 30 s window is not always full: short speech, padded, is what people try first.
        short = limit == WINDOW_SECONDS and rng.random() < SHORT_SHARE
        window = maker.window(float(rng.uniform(4, 20)) if short else limit, rng, clean=plain)
        if short:
            padding = int(WINDOW_SECONDS * RATE) - len(window.audio)
            window = Window(np.pad(window.audio, (0, padding)), window.segments)
        timestamps = window.is_cut or (not plain and rng.random() < TIMESTAMPS_SHARE)
        # A short window stands for a piece of a full one, with invented text before it: much cheaper
        # practice for late positions than full windows. The timestamps before it show the decoder how late.
        history: list[Segment] = []
        offset = 0
        if window.segments and limit < WINDOW_SECONDS and (anywhere or (late and timestamps)):
            offset = int(rng.integers(0, (WINDOW_SECONDS - limit) / POSITION_SECONDS))
            if not anywhere:
                history = maker.history(offset * POSITION_SECONDS, rng)
                offset = offset if history else 0
        prompted = limit > 4 and rng.random() < PROMPT_SHARE
        sentences = int(rng.integers(1, 6)) if prompted else 0
        previous = [maker.draw_clip(rng).text for _ in range(sentences)]
        shifted = [s.shifted(offset * POSITION_SECONDS) for s in window.segments]
        windows.append(window)
        offsets.append(offset)
        transcripts.append(
            transcriber.transcript(
                Window(window.audio, shifted),
                timestamps,
                previous,
                say_no_speech=bool(rng.random() < 0.5),
                history=history,
            )
        )
    return collate(windows, transcripts, offsets, rng, transcriber.vocabulary.end, plain, from_start)


def prefetch(make: Callable[[np.random.Generator], Batch], seeds: list[int]) -> Generator[Batch, None, None]:
    """Make batches in a thread, two ahead."""
    rng = np.random.default_rng(seeds)
    thread = ThreadPoolExecutor(max_workers=1)
    try:
        ahead = deque(thread.submit(make, rng) for _ in range(2))
        while True:
            ahead.append(thread.submit(make, rng))
            yield ahead.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)
