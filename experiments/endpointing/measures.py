"""Utterances with hesitations, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from experiments.agents.takes import GAP_S, Take, take_of
from specwhisper.types import SAMPLE_RATE

HESITATION_S = 0.8
WHERE = (0.3, 0.7)  # of an utterance, in parts of its length
FRAME = SAMPLE_RATE // 20  # whose loudness is compared
WORD = re.compile(r"[\w']+")


@dataclass(frozen=True, slots=True)
class Ended:
    """An utterance that the server ended.

    Attributes
    ----------
    at_s : when its last text arrived, in seconds since the audio began.
    end_s : where it ends in the audio.
    """

    at_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a take's utterances under a setting.

    Attributes
    ----------
    latencies_s : from the end of speech to the last final text; ``GAP_S`` where it came later or not.
    num_cut : utterances that ended before their speech did.
    texts : of the utterances, without punctuation and case.
    """

    latencies_s: tuple[float, ...]
    num_cut: int
    texts: tuple[str, ...]

    def quantile_s(self, share: float) -> float:
        """Return a quantile of the latencies."""
        return float(np.quantile(self.latencies_s, share))

    def num_unlike(self, other: Outcome) -> int:
        """Count the utterances that have another text."""
        return sum(mine != theirs for mine, theirs in zip(self.texts, other.texts, strict=True))

    @property
    def facts(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        return {"latencies_s": list(self.latencies_s), "num_cut": self.num_cut, "texts": list(self.texts)}


def hesitating(utterance: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return an utterance with silence where it is quietest, near its middle."""
    first, last = (int(len(utterance) * share) // FRAME for share in WHERE)
    frames = utterance[first * FRAME : max(first + 1, last) * FRAME].reshape(-1, FRAME).astype(np.float64)
    cut = (first + int((frames**2).sum(axis=1).argmin())) * FRAME + FRAME // 2
    silence = np.zeros(round(HESITATION_S * SAMPLE_RATE), np.int16)
    return np.concatenate([utterance[:cut], silence, utterance[cut:]])


def make_take(pieces: Sequence[NDArray[np.int16]], num: int, random: Generator) -> Take:
    """Return a take of ``num`` utterances; every second one hesitates."""
    chosen = [pieces[index] for index in random.permutation(len(pieces))[:num]]
    return take_of([hesitating(piece) if number % 2 else piece for number, piece in enumerate(chosen)])


def outcome_of(take: Take, ended: Iterable[Ended]) -> Outcome:
    """Assign what the server ended to the utterances of a take."""
    ended, latencies_s, texts, num_cut = list(ended), [], [], 0
    for begin_s, end_s in take.spans_s:
        own = [one for one in ended if begin_s < one.end_s < end_s + GAP_S]
        last_s = max((one.at_s for one in own), default=end_s + GAP_S)
        latencies_s.append(min(GAP_S, max(0.0, last_s - end_s)))
        num_cut += len(own) > 1
        texts.append(" ".join(WORD.findall(" ".join(one.text for one in own).lower())))
    return Outcome(tuple(latencies_s), num_cut, tuple(texts))
