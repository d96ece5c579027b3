"""transformers' ``generate`` and its assisted generation, as their users call them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.baselines.local import Models
from experiments.baselines.local import Transformers as Generating
from experiments.common.audio.samples import Sample
from experiments.peers.arms import Piece, Run, System
from specwhisper.types import SAMPLE_RATE


class TransformersPeer(Generating):
    """A model and, as its assistant, a decoder that shares its encoder."""

    def __init__(self, target: str, assistant: str) -> None:
        super().__init__(Models(target, draft=assistant, assistant=assistant, gamma=None))

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        """Transcribe recordings in turn; features count as time, as for every system."""
        started_s = time.perf_counter()
        is_assisted = system is System.ASSISTED
        tokens = tuple(self.transcribe(sample, timestamps, is_assisted).tokens for sample in samples)
        return Run(time.perf_counter() - started_s, tokens)

    def decode(self, pieces: Sequence[Piece]) -> Run:
        """Write a given number of tokens for each window."""
        written = []
        started_s = time.perf_counter()
        for piece in pieces:
            samples = np.frombuffer(piece.pcm, "<i2").astype(np.float32) / 32768
            features: Any = self._extract(
                samples, sampling_rate=SAMPLE_RATE, return_tensors="pt"
            ).input_features
            output = self._model.generate(
                features,
                language="en",
                task="transcribe",
                do_sample=False,
                num_beams=1,
                min_new_tokens=piece.num_tokens,
                max_new_tokens=piece.num_tokens,
            )
            written.append(tuple(output[0].tolist()[-piece.num_tokens :]))
        return Run(time.perf_counter() - started_s, tuple(written))
