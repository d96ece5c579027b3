"""The audio that a pair is measured on, each recording with what is said in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.common.audio.samples import BUNDLED, Sample, load_samples
from specwhisper.audio.scan import log_mel_max
from specwhisper.evaluation.references import from_folder

NUM_WINDOWS = 40  # full windows of each kind, as the demo pair's evaluation has them


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording and what is said in it.

    ``one_window`` is whether the text is that of its first window alone.
    """

    sample: Sample
    text: str
    one_window: bool = False


def folder_recordings(folder: Path = BUNDLED, limit: int | None = None) -> list[Spoken]:
    """Decode recordings with texts; return the shortest, all by default."""
    found = [(load_samples([Path(str(each.audio))])[0], each.text) for each in from_folder(folder)]
    found.sort(key=lambda pair: pair[0].duration_s)
    return [Spoken(_with_maximum(sample), text) for sample, text in found[:limit]]


def _with_maximum(sample: Sample) -> Sample:
    """Set the log-mel maximum, so that a later window has the same features wherever it is computed."""
    return replace(sample, log_mel_max=log_mel_max([sample.pcm]))


def training_windows(work: Path, limit: int, seed: int) -> dict[str, list[Spoken]]:
    """Return full windows of the demo pair's test sentences: ``noisy`` and ``clean``."""
    # The demo pair's training data need packages that nothing else here needs.
    from experiments.demo_pair.data.corpus import Corpus
    from experiments.demo_pair.evaluation.evaluate import test_windows

    windows = test_windows(Corpus.load(work), per_split=0, packed=NUM_WINDOWS, seed=seed)
    kinds = {"noisy": "packed", "clean": "packed-clean"}
    return {kind: [_spoken(*window) for window in windows[name][:limit]] for kind, name in kinds.items()}


def _spoken(audio: np.ndarray, text: str) -> Spoken:
    pcm = (np.clip(audio, -1, 1) * 32_767).astype("<i2").tobytes()
    return Spoken(_with_maximum(Sample("window", pcm, {})), text, one_window=True)
