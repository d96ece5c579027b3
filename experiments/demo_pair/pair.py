"""How like real pairs a pair of models errs: its texts, its tokens after the target's, and its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import BUNDLED, Sample, load_samples
from experiments.common.replay.record import (
    NUM_SLOTS,
    WrittenWindow,
    find_divergences,
    transcribe,
)
from experiments.common.replay.trace import num_equal
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper_evaluation.comparison import error_rates
from specwhisper_evaluation.references import from_folder

MOST_SKIPPED = 3  # tokens, of the draft's text and of the target's
LEAST_RUN = 2  # one equal token may be chance


def realigned_run(own: Sequence[int], right: Sequence[int]) -> int | None:
    """Return how many tokens hold after a correction, None if the draft does not realign.

    ``own`` is what the draft wrote, its wrong token first, and ``right`` the target's text after the
    corrected token. Up to three tokens of each may be skipped; the fewest are.
    """
    skips = product(range(MOST_SKIPPED + 1), repeat=2)
    for skipped_own, skipped_right in sorted(skips, key=sum):
        rest = right[skipped_right:]
        run = num_equal(own[skipped_own:], rest)
        if rest and run >= min(LEAST_RUN, len(rest)):
            return run
    return None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a draft agrees with the target's tokens.

    Attributes
    ----------
    num_tokens, num_accepted : the target's tokens, and those that the draft chooses after its prefix.
    num_corrections : wrong tokens of the draft that are followed by further tokens of the target.
    runs : tokens that hold after each correction after which the draft realigns.
    """

    num_tokens: int
    num_accepted: int
    num_corrections: int
    runs: tuple[int, ...]

    @property
    def acceptance(self) -> float:
        """Share of tokens that are accepted given the target's prefix (alpha)."""
        return self.num_accepted / max(1, self.num_tokens)

    @property
    def realigns(self) -> float:
        """Share of corrections after which the draft's own continuation holds again (beta)."""
        return len(self.runs) / max(1, self.num_corrections)

    @property
    def mean_run(self) -> float:
        return sum(self.runs) / max(1, len(self.runs))


def agreement(texts: Iterable[tuple[Sequence[int], Mapping[int, Sequence[int]]]]) -> Agreement:
    """Count over windows.

    Each is the target's tokens, and the draft's continuation at each position where it chooses another
    token than the target's, that token first.
    """
    num_tokens = num_accepted = num_corrections = 0
    runs: list[int] = []
    for tokens, divergences in texts:
        num_tokens += len(tokens)
        num_accepted += len(tokens) - len(divergences)
        for position, own in divergences.items():
            if right := tokens[position + 1 :]:
                num_corrections += 1
                run = realigned_run(own, right)
                runs += [] if run is None else [run]
    return Agreement(num_tokens, num_accepted, num_corrections, tuple(runs))


MAX_CONTINUATION = 32  # tokens that are followed after an error, so the longest run that is counted
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
        drafts = {}
        for name, draft in self.drafts.items():
            windows = [replace(one, divergences={}) for of_one in written for one in of_one]
            for one in windows:
                find_divergences(draft, one, MAX_CONTINUATION)
            own = self._texts(self._transcribe(draft, recordings, options))
            drafts[name] = DraftErrors(
                error_rates(said, own, LANGUAGE).wer,
                error_rates(target_said, own, LANGUAGE).wer,
                agreement((one.tokens, one.divergences) for one in windows),
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


def print_errors(name: str, errors: SetErrors, console: Console) -> None:
    table = Table(
        "model",
        "WER alone",
        "words unlike the target's",
        "accepted",
        "realigns",
        "then holds, tokens",
        title=f"{name}: {errors.num_recordings}",
        caption="accepted: tokens given the target's prefix. realigns: corrections after which what the "
        "draft had written holds again within three tokens.",
    )
    table.add_row("target", f"{errors.target_wer:.1%}", "", "", "", "")
    for draft, found in errors.drafts.items():
        agreement = found.agreement
        table.add_row(
            draft,
            f"{found.wer:.1%}",
            f"{found.unlike_target:.1%}",
            f"{agreement.acceptance:.1%} of {agreement.num_tokens}",
            f"{agreement.realigns:.1%} of {agreement.num_corrections}",
            f"{agreement.mean_run:.1f}",
        )
    console.print(table)
