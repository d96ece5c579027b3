"""How like real pairs a pair of models errs: its texts, its tokens after the target's, and its steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.common.audio.samples import BUNDLED, Sample, load_samples
from experiments.common.replay.record import (
    NUM_SLOTS,
    TargetText,
    WrittenWindow,
    find_divergences,
    transcribe,
)
from experiments.demo_pair.realignment import Agreement, agreement
from specwhisper.audio.recording import Recording, log_mel_max
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.choosing import Row
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, AudioChunk
from specwhisper_evaluation.references import from_folder
from specwhisper_evaluation.scoring import error_rates

MAX_CONTINUATION = 32  # tokens that are followed after an error, so the longest run that is counted
HELD = 60  # tokens in the slot of a timed step: the middle of a window of speech
UNTIMED = 10  # first steps take longer
LANGUAGE = "en"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording and what is said in it.

    ``one_window`` is whether the text is that of its first window alone.
    """

    sample: Sample
    text: str
    one_window: bool = False

    @classmethod
    def of(cls, sample: Sample, text: str, *, one_window: bool = False) -> Spoken:
        """Set the log-mel maximum, so that a later window has the same features wherever it is computed."""
        return cls(replace(sample, log_mel_max=log_mel_max([sample.pcm])), text, one_window)


def folder_recordings(folder: Path = BUNDLED, limit: int | None = None) -> list[Spoken]:
    """Decode recordings with texts; return the shortest, all by default."""
    found = [(load_samples([Path(str(each.audio))])[0], each.text) for each in from_folder(folder)]
    found.sort(key=lambda pair: pair[0].duration_s)
    return [Spoken.of(sample, text) for sample, text in found[:limit]]


@dataclass(frozen=True, slots=True)
class DraftErrors:
    """A draft's errors on a set of recordings.

    Attributes
    ----------
    wer : word error rate of the draft's text without corrections, against what is said.
    unlike_target : the same, against the target's text.
    """

    wer: float
    unlike_target: float
    agreement: Agreement

    def facts(self) -> dict[str, Any]:
        derived = {name: getattr(self.agreement, name) for name in ("acceptance", "realigns", "mean_run")}
        return {**asdict(self), **derived}


@dataclass(frozen=True, slots=True)
class SetErrors:
    num_recordings: int
    target_wer: float
    drafts: Mapping[str, DraftErrors]

    def facts(self) -> dict[str, Any]:
        drafts = {name: draft.facts() for name, draft in self.drafts.items()}
        return {"recordings": self.num_recordings, "target_wer": self.target_wer, "drafts": drafts}


class Pair:
    """A target and its drafts, loaded; drafts have the target's vocabulary."""

    def __init__(self, target: Checkpoint, drafts: Mapping[str, Checkpoint]) -> None:
        self.max_new_tokens = target.max_new_tokens
        self.target: Model = WhisperModel(target, NUM_SLOTS)
        self.drafts: dict[str, Model] = {
            name: open_draft(draft, NUM_SLOTS, target.vocabulary) for name, draft in drafts.items()
        }

    @classmethod
    def load(cls, target: str, drafts: Sequence[str]) -> Pair:
        return cls(load_checkpoint(target), {name: load_checkpoint(name) for name in drafts})

    def measure(self, recordings: Sequence[Spoken]) -> SetErrors:
        """Decode recordings with each model alone, and with each draft after the target's text."""
        said = [spoken.text for spoken in recordings]
        options = [
            DecodingOptions.greedy(language=LANGUAGE, log_mel_max=spoken.sample.log_mel_max)
            for spoken in recordings
        ]
        written = self._transcribe(self.target, recordings, options)
        target_said = self._texts(written)
        texts = [
            TargetText(_recording(spoken), window.window, window.tokens, used)
            for spoken, used, windows in zip(recordings, options, written, strict=True)
            for window in windows
        ]
        drafts = {}
        for name, draft in self.drafts.items():
            found = find_divergences(draft, texts, MAX_CONTINUATION)
            own = self._texts(self._transcribe(draft, recordings, options))
            drafts[name] = DraftErrors(
                error_rates(said, own, LANGUAGE).wer,
                error_rates(target_said, own, LANGUAGE).wer,
                agreement((text.tokens, one.tokens) for text, one in zip(texts, found, strict=True)),
            )
        target_wer = error_rates(said, target_said, LANGUAGE).wer
        return SetErrors(len(recordings), target_wer, drafts)

    def _transcribe(
        self, model: Model, recordings: Sequence[Spoken], options: Sequence[DecodingOptions]
    ) -> list[list[WrittenWindow]]:
        jobs = [(spoken.sample, used) for spoken, used in zip(recordings, options, strict=True)]
        written = transcribe(model, jobs, self.max_new_tokens)
        return [
            windows[: 1 if spoken.one_window else None]
            for spoken, windows in zip(recordings, written, strict=True)
        ]

    def _texts(self, written: Sequence[Sequence[WrittenWindow]]) -> list[str]:
        decode = self.target.vocabulary.decode
        return ["".join(decode(window.tokens) for window in windows) for windows in written]


def _recording(spoken: Spoken) -> Recording:
    recording = Recording(spoken.sample.log_mel_max)
    recording.append(AudioChunk(0, spoken.sample.pcm, is_last=True))
    return recording


def step_milliseconds(models: Mapping[str, Model], rounds: int) -> dict[str, float]:
    """Return the median processor time of a step of one token, of all threads.

    In each round every model takes one step. Processor time leaves out the waiting for a core that other
    programs use.
    """
    rows = {name: _row_after_text(model) for name, model in models.items()}
    timings: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(UNTIMED + rounds):
        for name, model in models.items():
            started_s = time.process_time()
            model.score([rows[name]])
            timings[name].append((time.process_time() - started_s) * 1000)
            model.rollback(0, HELD)
    return {name: statistics.median(times[UNTIMED:]) for name, times in timings.items()}


def _row_after_text(model: Model) -> Row:
    """Fill a slot; return the row of one more token."""
    recording = Recording()
    recording.append(AudioChunk(0, bytes(2 * SAMPLE_RATE), is_last=True))
    model.encode(0, recording, 0)
    vocabulary = model.vocabulary
    text = [vocabulary.timestamp_begin, *[0] * (HELD - 2)]
    model.score([Row(0, [vocabulary.start_of_transcript, *text], 0, text, timestamps=True)])
    return Row(0, [0], 0, [*text, 0], timestamps=True)
