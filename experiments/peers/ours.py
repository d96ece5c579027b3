"""This project in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

from transformers.utils import logging

from experiments.common.audio.samples import Sample
from experiments.common.inline_pair import InlinePair
from experiments.peers.arms import INT8, NUM_BATCHED, Audio, Run, System, timed, without_specials
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.model.backends import load_encoders
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

DRAFT_DTYPE = INT8  # it never changes the text


class OneProcess:
    """Several ways to transcribe with one target, each by its system's name."""

    def __init__(self, target: Checkpoint, models: Mapping[System, tuple[Model, Model | None]]):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._special = special_of(target)
        self._engines = {
            system: InlinePair(
                *pair,
                mode=Mode.TARGET_ONLY if pair[1] is None else Mode.ONE_PROCESS,
                max_new_tokens=target.max_new_tokens,
            )
            for system, pair in models.items()
        }

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        engine, batches = self._engines[system], [[sample] for sample in samples]
        if system is System.ONE_PROCESS_BATCHED:
            batches = [list(samples)]
        wall_s, tokens, total = [], [], SpeculationStatistics()
        for batch in batches:
            options = [
                DecodingOptions.greedy(language="en", timestamps=timestamps, log_mel_max=sample.log_mel_max)
                for sample in batch
            ]
            started_s = perf_counter()
            transcripts = engine.transcribe([sample.pcm for sample in batch], options)
            wall_s.append(perf_counter() - started_s)
            for transcript in transcripts:
                total.add(transcript.stats)
                written = (token for segment in transcript.segments for token in segment.tokens)
                tokens.append(without_specials(written, self._special))
        return Run(tuple(wall_s), tuple(tokens), total)


class Offered:
    def __init__(self, target: str, draft: str, dtype: str) -> None:
        pair = SpeculativeWhisper(
            draft, target, "cpu", dtype=dtype, draft_dtype=DRAFT_DTYPE, batch_size=1, cut_windows=True
        )
        self._models = {System.ONE_PROCESS: pair, System.TARGET_ONLY: pair.without_draft()}

    def run(self, system: System, samples: Sequence[Sample], _: bool) -> Run:
        total = SpeculationStatistics()

        def transcribe(audio: Audio) -> list[int]:
            text = self._models[system].transcribe(audio, language="en", greedy=True, progress=False)
            total.add(text.stats)
            return [token for segment in text.segments for token in segment.tokens]

        found = timed(samples, transcribe)
        return Run(found.wall_s, found.tokens, total)


def special_of(target: Checkpoint) -> tuple[int, int]:
    """Return the ids that are neither text nor timestamps: first, one past the last."""
    return target.vocabulary.end_of_text, target.vocabulary.timestamp_begin


def on_pair(target: str, draft: str, distilled: str, dtype: str) -> OneProcess:
    """Load a pair; only the distilled draft shares its target's encoder."""
    large, small, distil = (load_checkpoint(name, dtype=dtype) for name in (target, draft, distilled))
    drafts_encoder, encoder = load_encoders(distil, large, 1)
    models: dict[System, tuple[Model, Model | None]] = {
        System.TARGET_ONLY: (WhisperModel(large, 1), None),
        System.ONE_PROCESS: (WhisperModel(large, 1), open_draft(small, 1, large.vocabulary)),
        System.ONE_PROCESS_DISTIL: (
            WhisperModel(large, 1, encoder=encoder),
            open_draft(distil, 1, large.vocabulary, encoder=drafts_encoder),
        ),
        System.ONE_PROCESS_BATCHED: (
            WhisperModel(large, NUM_BATCHED),
            open_draft(small, NUM_BATCHED, large.vocabulary),
        ),
    }
    return OneProcess(large, models)
