"""The matrix in reduced precision: how often wider passes round differently, and at which margins."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from experiments.common.models.caching_encoder import CachingEncoder
from experiments.common.models.checkpoints import checkpoint_from_model
from experiments.exactness.matrix import SPLITS
from experiments.exactness.prepared import Prepared
from experiments.exactness.wrapping import Wrapping
from specwhisper.audio.recording import Recording
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.backends import load_encoder
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.transcription.transcription import Transcription

Place = tuple[int, int, tuple[int, ...]]  # samples of the recording, first frame of the window, prefix


class Noting(Wrapping):
    """A target that notes how far its choice was ahead of the second best, wherever it was asked."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.margins: dict[Place, float] = {}
        self.frames: dict[int, list[int]] = {}  # of each recording, the first frames of its windows in order

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Encode, and note the window."""
        super().encode(slot, recording, start_frame)
        self.frames.setdefault(recording.received_samples, []).append(start_frame)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Choose as the model does."""
        scores = self._model.score(rows)
        for row, score in zip(rows, scores, strict=True):
            for i, margin in enumerate(score.margins):
                self.margins[(*self._places[row.slot], (*row.generated, *row.candidates[:i]))] = margin
        return scores


@dataclass
class Reduced:
    """Differences of a row in reduced precision.

    Attributes
    ----------
    num_tokens : compared, over all pairs: up to where a recording's two texts part.
    margins : of the target alone, at each place where a pair's text parts from its own.
    num_from_float32 : recordings whose text the target alone writes otherwise than in float32.
    """

    name: str
    num_recordings: int = 0
    num_tokens: int = 0
    margins: list[float] = field(default_factory=list)
    num_from_float32: int = 0


def run_reduced(name: str, made: Prepared, num_slots: int, dtype: str) -> Reduced:
    """Decode a case by the target alone and by every pair; drafts stay in float32."""
    is_int8 = dtype == "int8"
    model = copy.deepcopy(made.model).to(torch.float32 if is_int8 else getattr(torch, dtype))
    checkpoint = checkpoint_from_model(model, made.tokens, name=made.name, tokenizer=made.tokenizer)
    checkpoint = replace(checkpoint, dtype="int8") if is_int8 else checkpoint
    encoder = CachingEncoder(load_encoder(checkpoint))
    pcms, options = made.pcms, made.recording_options  # transformers is not asked
    target = Noting(WhisperModel(checkpoint, num_slots, encoder=encoder))
    alone = InlinePair(target).transcribe(pcms, options)
    margins, frames = dict(target.margins), {samples: list(f) for samples, f in target.frames.items()}
    result = Reduced(name, num_recordings=len(alone))
    exact = InlinePair(made.target(num_slots)).transcribe(pcms, options)
    result.num_from_float32 = sum(
        a.window_tokens != b.window_tokens for a, b in zip(alone, exact, strict=True)
    )
    for (mode, gamma), kind in zip(SPLITS, made.drafts, strict=True):
        drafted, drafts_encoder = made.draft_parts(kind)
        draft = open_draft(drafted, num_slots, checkpoint.vocabulary, encoder=drafts_encoder)
        texts = InlinePair(target, draft, mode=mode, gamma=gamma).transcribe(pcms, options)
        for pcm, ours, theirs in zip(pcms, texts, alone, strict=True):
            _compare(ours, theirs, len(pcm) // 2, frames, margins, result)
    return result


def _compare(
    ours: Transcription,
    theirs: Transcription,
    num_samples: int,
    frames: dict[int, list[int]],
    margins: dict[Place, float],
    result: Reduced,
) -> None:
    """Go along two texts to where they part; of windows decoded twice or skipped the margin is not known."""
    starts = frames.get(num_samples, [])
    is_plain = len(starts) == len(theirs.window_tokens)
    for number, (a, b) in enumerate(zip(ours.window_tokens, theirs.window_tokens, strict=False)):
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        result.num_tokens += same
        if a != b:
            result.num_tokens += 1
            place = (num_samples, starts[number], tuple(b[:same])) if is_plain else None
            result.margins.append(margins.get(place, math.nan) if place else math.nan)
            return
