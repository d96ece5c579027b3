"""Batches of windows: audio, tokens and labels, made in a background thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from experiments.demo_pair.data.features import HOP, log_mel
from experiments.demo_pair.data.windows import (
    WINDOW_SECONDS,
    Segment,
    Transcriber,
    Transcript,
    Window,
    WindowMaker,
)
from experiments.demo_pair.training import parallel

SECONDS_PER_BATCH = 112.0
TIMESTAMPS_SHARE = 0.7
PROMPT_SHARE = 0.15
LATE_SHARE = 0.3
SHORT_SHARE = 0.2  # of the windows of 30 s
POSITION_SECONDS = 0.02


@dataclass(frozen=True)
class Batch:
    """Windows of one length with their transcripts."""

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
    """Stack windows and pad their tokens."""
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
    complete = torch.tensor([all(s.end is not None for s in w.segments) for w in windows])
    return Batch(
        audio,
        torch.from_numpy(louder).float(),
        zero_from,
        tokens,
        labels,
        [t.phonemes for t in transcripts],
        complete,
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
    for _ in range(max(1, round(SECONDS_PER_BATCH / parallel.processes() / limit))):
        # A 30 s window is not always full: short speech, padded, is what people try first.
        short = limit == WINDOW_SECONDS and rng.random() < SHORT_SHARE
        window = maker.window(float(rng.uniform(4, 20)) if short else limit, rng, clean=plain)
        if short:
            padding = int(WINDOW_SECONDS * 16_000) - len(window.audio)
            window = Window(np.pad(window.audio, (0, padding)), window.segments)
        cut = any(segment.end is None for segment in window.segments)
        timestamps = cut or (not plain and rng.random() < TIMESTAMPS_SHARE)
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
        segments = [s.shifted(offset * POSITION_SECONDS) for s in window.segments]
        windows.append(window)
        offsets.append(offset)
        transcripts.append(
            transcriber.transcript(
                segments,
                timestamps,
                previous,
                say_no_speech=bool(rng.random() < 0.5),
                history=history,
            )
        )
    return collate(windows, transcripts, offsets, rng, transcriber.vocabulary.end, plain, from_start)


def prefetch(make: Callable[[np.random.Generator], Batch], seeds: list[int]) -> Generator[Batch, None, None]:
    """Make batches in a thread, two ahead; the thread ends with the iterator."""
    ready: queue.Queue[Batch | BaseException] = queue.Queue(maxsize=2)
    closed = threading.Event()

    def work() -> None:
        rng = np.random.default_rng(seeds)
        while not closed.is_set():
            try:
                ready.put(make(rng))
            except BaseException as error:
                ready.put(error)
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            batch = ready.get()
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        closed.set()
        while thread.is_alive():  # it may be waiting for room
            with suppress(queue.Empty):
                ready.get(timeout=0.1)
