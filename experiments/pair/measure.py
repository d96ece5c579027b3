"""Measure a target and its drafts on recordings, in this project's engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from experiments.common.replay.divergences import TargetText, find_divergences
from experiments.common.replay.record import NUM_SLOTS, WrittenWindow, transcribe
from experiments.pair.realignment import Agreement, agreement
from experiments.pair.recordings import Spoken
from specwhisper.audio.recording import Recording
from specwhisper.evaluation.scoring import error_rates
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk

MAX_CONTINUATION = 32  # tokens that are followed after an error, so the longest run that is counted


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
        """Return all figures for a JSON file."""
        derived = {name: getattr(self.agreement, name) for name in ("acceptance", "realigns", "mean_run")}
        return {**asdict(self), **derived}


@dataclass(frozen=True, slots=True)
class SetErrors:
    """The errors of all models on one set of recordings."""

    num_recordings: int
    target_wer: float
    drafts: Mapping[str, DraftErrors]

    def facts(self) -> dict[str, Any]:
        """Return all figures for a JSON file."""
        drafts = {name: draft.facts() for name, draft in self.drafts.items()}
        return {"recordings": self.num_recordings, "target_wer": self.target_wer, "drafts": drafts}


class Pair:
    """A target and its drafts, loaded; drafts have the target's vocabulary."""

    def __init__(
        self, target: Checkpoint, drafts: Mapping[str, Checkpoint], *, cut_windows: bool = False
    ) -> None:
        self.max_new_tokens = target.max_new_tokens
        self.target: Model = WhisperModel(target, NUM_SLOTS)
        self.drafts: dict[str, Model] = {}
        for name, draft in drafts.items():
            self.drafts[name] = open_draft(draft, NUM_SLOTS, target.vocabulary, cut_windows=cut_windows)

    @classmethod
    def load(cls, target: str, drafts: Sequence[str], *, cut_windows: bool = False) -> Pair:
        """Load checkpoints by name."""
        loaded = {name: load_checkpoint(name) for name in drafts}
        return cls(load_checkpoint(target), loaded, cut_windows=cut_windows)

    def measure(self, recordings: Sequence[Spoken], language: str | None) -> SetErrors:
        """Decode recordings with each model alone, and with each draft after the target's text."""
        jobs = [
            (spoken.sample, DecodingOptions.greedy(language=language, log_mel_max=spoken.sample.log_mel_max))
            for spoken in recordings
        ]
        written = [
            windows[: 1 if spoken.one_window else None]
            for spoken, windows in zip(recordings, self._transcribe(self.target, jobs), strict=True)
        ]
        texts = [
            TargetText(_recording(spoken), window.window, window.tokens, options)
            for spoken, (_, options), windows in zip(recordings, jobs, written, strict=True)
            for window in windows
        ]
        said = [spoken.text for spoken in recordings]
        target_said = [self._text(windows) for windows in written]
        drafts = {}
        for name, draft in self.drafts.items():
            found = find_divergences(draft, texts, MAX_CONTINUATION)
            own = [
                self._text(windows[: 1 if spoken.one_window else None])
                for spoken, windows in zip(recordings, self._transcribe(draft, jobs), strict=True)
            ]
            drafts[name] = DraftErrors(
                error_rates(said, own, language or "en").wer,
                error_rates(target_said, own, language or "en").wer,
                agreement((text.tokens, one.tokens) for text, one in zip(texts, found, strict=True)),
            )
        target_wer = error_rates(said, target_said, language or "en").wer
        return SetErrors(len(recordings), target_wer, drafts)

    def _transcribe(
        self, model: Model, jobs: Sequence[tuple[Any, DecodingOptions]]
    ) -> list[list[WrittenWindow]]:
        return transcribe(model, jobs, self.max_new_tokens)

    def _text(self, windows: Sequence[WrittenWindow]) -> str:
        return "".join(self.target.vocabulary.decode(window.tokens) for window in windows)


def _recording(spoken: Spoken) -> Recording:
    recording = Recording(spoken.sample.log_mel_max)
    recording.append(AudioChunk(0, spoken.sample.pcm, is_last=True))
    return recording


def bytes_on_disk(name: str) -> int:
    """Return the size of a model's folder, or of what the hub's cache has of it."""
    source = resolve(name)
    folder = Path(source) if Path(source).is_dir() else Path(snapshot_download(source, local_files_only=True))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
