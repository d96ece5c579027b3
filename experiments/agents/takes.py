"""Utterances apart from each other, so that each final text has one end of speech to be timed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from experiments.agents.clients import Text
from specwhisper.types import SAMPLE_RATE

GAP_S = 3.0  # after each utterance; a text that comes later is counted as late by all of it
LEAD_S = 1.0
MIN_PAUSE_S = 0.35  # between two utterances of a recording
FRAME = SAMPLE_RATE // 100
LOUD = 0.02  # of the loudest frame


@dataclass(frozen=True, slots=True)
class Take:
    """A recording; ``spans_s`` are begin and end of the speech of each utterance, in seconds."""

    samples: NDArray[np.int16]
    spans_s: tuple[tuple[float, float], ...]

    def write(self, path: Path) -> None:
        """Write a WAV file."""
        soundfile.write(path, self.samples, SAMPLE_RATE, subtype="PCM_16")


def utterances(samples: NDArray[np.int16]) -> list[NDArray[np.int16]]:
    """Cut a clean recording at its pauses."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    loudness = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(loudness > LOUD * loudness.max())
    cuts = np.flatnonzero(np.diff(loud) > MIN_PAUSE_S * 100)
    starts = [loud[0], *loud[cuts + 1]]
    ends = [*loud[cuts], loud[-1]]
    return [samples[start * FRAME : (end + 1) * FRAME] for start, end in zip(starts, ends, strict=True)]


def take_of(chosen: Sequence[NDArray[np.int16]]) -> Take:
    """Join utterances with silence between them."""
    pieces, spans = [np.zeros(round(LEAD_S * SAMPLE_RATE), np.int16)], []
    position = len(pieces[0])
    gap = np.zeros(round(GAP_S * SAMPLE_RATE), np.int16)
    for utterance in chosen:
        spans.append((position / SAMPLE_RATE, (position + len(utterance)) / SAMPLE_RATE))
        pieces += [utterance, gap]
        position += len(utterance) + len(gap)
    return Take(np.concatenate(pieces), tuple(spans))


def latencies(take: Take, texts: Sequence[Text]) -> list[float]:
    """Return the seconds from the end of each utterance's speech to its last final text.

    An utterance that gets no final text after its end counts as ``GAP_S``: it was lost, late or cut off.
    """
    finals = [text.s for text in texts if text.kind == "final"]
    found = []
    for _, end_s in take.spans_s:
        own = [at_s for at_s in finals if end_s < at_s < end_s + GAP_S]
        found.append(max(own) - end_s if own else GAP_S)
    return found
