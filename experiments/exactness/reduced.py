"""The matrix in reduced precision: how often a wider pass rounds differently, and how close a call it was."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from experiments.exactness.matrix import SPLITS
from experiments.exactness.prepared import Prepared
from experiments.exactness.remembering import heard_once
from specwhisper.audio.recording import Recording
from specwhisper.transcription.transcript import Transcript
from specwhisper.whisper.checkpoint import checkpoint_from_model
from specwhisper.whisper.choosing import Row, Scores
from specwhisper.whisper.model import Model, WhisperModel
from specwhisper.whisper.one_process import OneProcess
from specwhisper.whisper.pairing import draft_ids

Place = tuple[int, int, tuple[int, ...]]  # samples of the recording, number of its window, prefix


class Noting:
    """A target that notes how far its choice was ahead of the second best, wherever it was asked."""

    def __init__(self, model: Model) -> None:
        self.vocabulary, self.num_slots = model.vocabulary, model.num_slots
        self.num_mel_bins, self.max_positions = model.num_mel_bins, model.max_positions
        self.rollback, self.length = model.rollback, model.length
        self.tokenize, self.align, self.has_word_times = model.tokenize, model.align, model.has_word_times
        self.margins: dict[Place, float] = {}
        self._model = model
        self._places: list[tuple[int, int]] = [(0, -1)] * model.num_slots

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Encode, and note where the slot is."""
        samples, number = self._places[slot]
        is_next = samples == recording.received_samples and start_frame > 0
        self._places[slot] = (recording.received_samples, number + 1 if is_next else 0)
        self._model.encode(slot, recording, start_frame)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Choose as the model does."""
        scores = self._model.score(rows)
        for row, score in zip(rows, scores, strict=True):
            candidates = row.tokens[len(row.tokens) - row.num_candidates :]
            for i, margin in enumerate(score.margins):
                self.margins[(*self._places[row.slot], (*row.generated, *candidates[:i]))] = margin
        return scores


@dataclass
class Reduced:
    """What reduced precision does to a row.

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


def run_reduced(name: str, made: Prepared, num_slots: int, dtype: torch.dtype) -> Reduced:
    """Decode a case by the target alone and by every pair, all in ``dtype``."""
    model = copy.deepcopy(made.model).to(dtype)
    checkpoint = heard_once(
        checkpoint_from_model(model, made.tokens, name=made.case.name, tokenizer=made.tokenizer)
    )
    batch = made.batch
    target = Noting(WhisperModel(checkpoint, num_slots))
    alone = OneProcess(target).transcribe(batch.pcms, batch.options)
    margins = dict(target.margins)
    result = Reduced(name, num_recordings=len(alone))
    exact = OneProcess(made.target(num_slots)).transcribe(batch.pcms, batch.options)
    result.num_from_float32 = sum(
        a.window_tokens != b.window_tokens for a, b in zip(alone, exact, strict=True)
    )
    for mode, gamma, kind in SPLITS:
        drafted = made.draft_checkpoint(kind)
        ids = draft_ids(
            drafted.vocabulary, checkpoint.vocabulary, draft_name=kind, target_name=checkpoint.name
        )
        draft = WhisperModel(drafted, num_slots, vocabulary=checkpoint.vocabulary, ids=ids)
        texts = OneProcess(target, draft, mode=mode, gamma=gamma).transcribe(batch.pcms, batch.options)
        for pcm, ours, theirs in zip(batch.pcms, texts, alone, strict=True):
            _compare(ours, theirs, len(pcm) // 2, margins, result)
    return result


def _compare(
    ours: Transcript, theirs: Transcript, num_samples: int, margins: dict[Place, float], result: Reduced
) -> None:
    """Go along two texts to where they part."""
    for number, (a, b) in enumerate(zip(ours.window_tokens, theirs.window_tokens, strict=False)):
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        result.num_tokens += same
        if a != b:
            result.num_tokens += 1
            result.margins.append(margins.get((num_samples, number, tuple(b[:same])), float("nan")))
            return
