"""openai/whisper, greedy, in float32; only for shapes with Whisper's own vocabulary: it knows no other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.arms import Piece, Run


class OpenaiPeer:
    """A converted model."""

    def __init__(self, path: Path, end_of_text: int) -> None:
        import whisper

        self._whisper: Any = whisper
        self._model = whisper.load_model(str(path), device="cpu")
        self._end_of_text = end_of_text

    def decode(self, pieces: Sequence[Piece]) -> Run:
        """Write a given number of tokens for each window."""
        whisper, written = self._whisper, []
        started_s = time.perf_counter()
        for piece in pieces:
            samples = np.frombuffer(piece.pcm, "<i2").astype(np.float32) / 32768
            features = whisper.log_mel_spectrogram(whisper.pad_or_trim(samples), self._model.dims.n_mels)
            options = whisper.DecodingOptions(
                language="en",
                temperature=0.0,
                without_timestamps=True,
                suppress_tokens=[-1, self._end_of_text],
                sample_len=piece.num_tokens,
                fp16=False,
            )
            written.append(tuple(whisper.decode(self._model, features, options).tokens))
        return Run(time.perf_counter() - started_s, tuple(written))
