"""Target and distilled draft in one process: memory, and time to encode a window for both."""

from __future__ import annotations

import copy
import os
import time
from dataclasses import dataclass, replace

import torch
from torch import nn

from experiments.common.models.checkpoints import build_model, checkpoint_from_model
from experiments.common.models.published import PUBLISHED
from experiments.common.servers.usage import resident_mb
from specwhisper.audio.recording import Recording
from specwhisper.model.backends import load_encoders
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.types import AudioChunk

WAYS = ("target alone", "pair, two encoders", "pair, one encoder")
WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """Memory of a process with both models, and the time to encode a window for both."""

    way: str
    resident_mb: float
    encode_s: list[float]


class Pair:
    """Target and distilled draft (two decoder layers) of a published shape, in a process of their own."""

    def __init__(self, shape: str, way: str, dtype: torch.dtype, seed: int) -> None:
        model, tokens = build_model(replace(PUBLISHED[shape], seed=seed))
        model.to(dtype)
        target = checkpoint_from_model(model, tokens, name=shape)
        self.models = []
        encoder = None
        if way != WAYS[0]:
            student = copy.deepcopy(model)
            layers = student.model.decoder.layers
            student.model.decoder.layers = nn.ModuleList([layers[0], layers[-1]])
            student.config.decoder_layers = 2
            draft = checkpoint_from_model(student, tokens, name="distil")
            del student
            drafts_encoder = None
            if way == WAYS[2]:
                drafts_encoder, encoder = load_encoders(draft, target, 1)
            self.models.append(open_draft(draft, 1, target.vocabulary, encoder=drafts_encoder))
            del draft
        self.models.append(WhisperModel(target, 1, encoder=encoder))
        self._way = way

    def measure(self) -> Figures:
        """Encode windows with every model, as a transcription does."""
        seconds = []
        for number in range(WINDOWS):
            recording = Recording()
            tone = (torch.arange(16_000 * 2) * (number + 1) * 0.05).sin()
            recording.append(AudioChunk(0, (tone * 9_000).short().numpy().tobytes(), is_last=True))
            started_s = time.perf_counter()
            for model in self.models:
                model.encode(0, recording, 0)
            seconds.append(time.perf_counter() - started_s)
        return Figures(self._way, resident_mb(os.getpid()), seconds)
