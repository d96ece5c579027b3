"""Time the target with and without hints: every piece in all arms, one right after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from torch import Tensor

from experiments.common.bench.stats import RESAMPLES
from experiments.ctc_head.head import CtcHead
from experiments.ctc_head.passes import corrupted
from experiments.ctc_head.pieces import Piece
from experiments.ctc_head.target import Decoding, Target
from specwhisper.speculation.comparison import Ratio
from specwhisper.types import Mode

WRONG_SHARE = 0.1


class Arm(StrEnum):
    """A way to transcribe with the target."""

    TARGET_ONLY = "target-only"
    REUSE = "no hint"  # the mode of the arms below, in which a window may begin with a discarded tail
    HEAD = "hint of the head"
    WORSE = "own text, 10 % wrong"
    OWN = "own text"  # as good as a hint can be


@dataclass(slots=True)
class Times:
    """The times of an arm, each of one piece in one round, in seconds.

    Attributes
    ----------
    wall_s : on the clock, with encoder and head.
    cpu_s : processor time of this process: other programs take less of it than of the clock.
    decoding_s : of the forward passes on the clock, and of the head; without the encoder.
    encode_s : of the encoder on the clock.
    """

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    decoding_s: list[float] = field(default_factory=list)
    encode_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    num_forwards: int = 0
    num_candidates: int = 0

    def add(self, decoding: Decoding, wall_s: float, cpu_s: float, head_s: float) -> None:
        """Add a piece."""
        self.wall_s.append(wall_s)
        self.cpu_s.append(cpu_s)
        self.decoding_s.append(decoding.forward_ns / 1e9 + head_s)
        self.encode_s.append(decoding.encode_ns / 1e9)
        self.num_tokens += decoding.num_tokens
        self.num_forwards += decoding.num_forwards
        self.num_candidates += decoding.num_candidates


def measure(
    target: Target,
    head: CtcHead,
    pieces: Sequence[Piece],
    encoded: Sequence[Tensor],
    own_tokens: Sequence[Sequence[int]],
    *,
    rounds: int,
    seed: int,
) -> Mapping[Arm, Times]:
    """Transcribe every piece in all arms, in a new random order each time.

    The head's own time is part of its arm. What the encoder returned is at hand, as it is in the target.

    Raises
    ------
    RuntimeError : if the text of an arm is not target-only's, token for token.
    """
    rng = np.random.default_rng([seed, 3])
    times = {arm: Times() for arm in Arm}
    worse = [target.text_of(corrupted(tokens, WRONG_SHARE, rng)) for tokens in own_tokens]
    texts: dict[Arm, Callable[[int], str]] = {
        Arm.TARGET_ONLY: lambda index: "",
        Arm.REUSE: lambda index: "",
        Arm.HEAD: lambda index: target.text_of(head.tokens(encoded[index])),
        Arm.WORSE: lambda index: worse[index],
        Arm.OWN: lambda index: target.text_of(own_tokens[index]),
    }
    target.decode([pieces[0].pcm], Mode.TARGET_ONLY)  # to warm up
    for _ in range(rounds):
        for index, piece in enumerate(pieces):
            windows: dict[Arm, list[list[int]]] = {}
            for arm in rng.permutation(list(Arm)):
                mode = Mode.TARGET_ONLY if arm == Arm.TARGET_ONLY else Mode.FULL
                started_s, started_cpu_s = time.perf_counter(), time.process_time()
                hint = texts[Arm(arm)](index)
                hinted_s = time.perf_counter()
                (decoding,) = target.decode([piece.pcm], mode, [hint])
                wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
                times[Arm(arm)].add(decoding, wall_s, cpu_s, hinted_s - started_s)
                windows[Arm(arm)] = decoding.windows
            for arm, written in windows.items():
                if written != windows[Arm.TARGET_ONLY]:
                    raise RuntimeError(f"The text of {piece.name} differs with '{arm}'.")
    return times


def ratio(times: Sequence[float], references: Sequence[float], seed: int = 0) -> Ratio:
    """Return the ratio of two arms' sums; the interval is from resampling the windows as pairs.

    Sums, since a window of silence has little to save and takes little time.
    """
    ours, theirs = np.asarray(times, float), np.asarray(references, float)
    chosen = np.random.default_rng(seed).integers(0, len(ours), (RESAMPLES, len(ours)))
    resampled = ours[chosen].sum(axis=1) / theirs[chosen].sum(axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Ratio(float(ours.sum() / theirs.sum()), float(low), float(high), len(ours))
