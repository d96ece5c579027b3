"""Our two engines in one process: on real weights, or as a replay of the demo pair at the cost of a shape."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.utils import logging

from experiments.common.audio.samples import Sample
from experiments.common.replay.model import ReplayDraft, ReplayTarget
from experiments.common.replay.trace import Trace
from experiments.peers.arms import Run, System
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.backend import Encoder
from specwhisper.model.backends import load_encoders
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

NUM_BATCHED = 8


class Ours:
    """Several ways to transcribe with one target, each by its system's name."""

    def __init__(self, engines: Mapping[System, InlinePair], models: Mapping[str, Any]) -> None:
        self._engines = engines
        self._models = models

    def describe(self) -> Mapping[str, Any]:
        """Return name and digest of the models."""
        return self._models

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        """Transcribe all recordings, one after the other unless the system is batched."""
        options = [
            DecodingOptions.greedy(language="en", timestamps=timestamps, log_mel_max=s.log_mel_max)
            for s in samples
        ]
        started_s = time.perf_counter()
        transcripts = self._engines[system].transcribe([sample.pcm for sample in samples], options)
        wall_s = time.perf_counter() - started_s
        total = SpeculationStatistics()
        for transcript in transcripts:
            total.add(transcript.stats)
        tokens = [tuple(t for s in transcript.segments for t in s.tokens) for transcript in transcripts]
        return Run(wall_s, tuple(tokens), total)


def on_demo_pair(target: str, draft: str, distilled: str, precision: str, gamma: int | None) -> Ours:
    """Load the demo pair; only the distilled draft shares its target's encoder."""
    _be_quiet()
    large, small = load_checkpoint(target, dtype=precision), load_checkpoint(draft, dtype=precision)
    distil = load_checkpoint(distilled, dtype=precision)
    engines = {
        System.TARGET_ONLY: _engine(WhisperModel(large, 1), None, large, gamma),
        System.ONE_PROCESS: _pair(large, small, 1, gamma),
        System.ONE_PROCESS_DISTIL: _pair(large, distil, 1, gamma, *load_encoders(distil, large, 1)),
        System.ONE_PROCESS_BATCHED: _pair(large, small, NUM_BATCHED, gamma),
    }
    digests = {one.name: one.weights_digest for one in (large, small, distil)}
    return Ours(engines, digests)


def as_replay(target: str, draft: str, trace: Path, precision: str, gamma: int | None) -> Ours:
    """Load random weights and replay the demo pair on them."""
    _be_quiet()
    recorded = Trace.load(trace)
    demo = load_checkpoint(recorded.target)
    large = ReplayTarget(recorded, demo.vocabulary, WhisperModel(load_checkpoint(target, dtype=precision), 1))
    small = ReplayDraft(recorded, demo.vocabulary, WhisperModel(load_checkpoint(draft, dtype=precision), 1))
    engines = {
        System.TARGET_ONLY: _engine(large, None, demo, gamma),
        System.ONE_PROCESS: _engine(large, small, demo, gamma),
    }
    return Ours(engines, {recorded.target: recorded.target_digest, recorded.draft: recorded.draft_digest})


def _be_quiet() -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _pair(
    target: Checkpoint,
    draft: Checkpoint,
    num_slots: int,
    gamma: int | None,
    drafts_encoder: Encoder | None = None,
    encoder: Encoder | None = None,
) -> InlinePair:
    drafting = open_draft(draft, num_slots, target.vocabulary, encoder=drafts_encoder)
    return _engine(WhisperModel(target, num_slots, encoder=encoder), drafting, target, gamma)


def _engine(target: Model, draft: Model | None, checkpoint: Checkpoint, gamma: int | None) -> InlinePair:
    mode = Mode.TARGET_ONLY if draft is None else Mode.ONE_PROCESS
    return InlinePair(target, draft, mode=mode, gamma=gamma, max_new_tokens=checkpoint.max_new_tokens)
