"""This project in one process, as the Python API offers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from transformers.utils import logging

from experiments.common.audio.samples import Sample
from experiments.peers.arms import NUM_BATCHED, Run, System, floats
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.speculation.statistics import SpeculationStatistics


class Offered:
    """A target with drafts, each by its system's name, and alone."""

    def __init__(self, target: str, drafts: Mapping[System, str], dtype: str, **settings: Any) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        sizes = {System.ONE_PROCESS_BATCHED: NUM_BATCHED}
        self._models = {
            system: SpeculativeWhisper(
                draft, target, "cpu", dtype=dtype, batch_size=sizes.get(system, 1), **settings
            )
            for system, draft in drafts.items()
        }
        self._models[System.TARGET_ONLY] = self._models[System.ONE_PROCESS].without_draft()

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        batches = [samples] if system is System.ONE_PROCESS_BATCHED else [[sample] for sample in samples]
        wall_s, tokens, total = [], [], SpeculationStatistics()
        for batch in batches:
            recordings = [floats(sample.pcm) for sample in batch]
            started_s = perf_counter()
            texts = self._models[system].transcribe(
                recordings, language="en", greedy=True, timestamps=timestamps, progress=False
            )
            wall_s.append(perf_counter() - started_s)
            for text in texts:
                total.add(text.stats)
                tokens.append(tuple(token for segment in text.segments for token in segment.tokens))
        return Run(tuple(wall_s), tuple(tokens), total)


def special_of(target: Checkpoint) -> tuple[int, int]:
    """Return the ids that are neither text nor timestamps: first, one past the last."""
    return target.vocabulary.end_of_text, target.vocabulary.timestamp_begin
