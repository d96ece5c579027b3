"""A load on the target, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from experiments.capacity.log import SessionLog
from experiments.capacity.usage import Usage
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode

LEAD_S = 1.0  # between an order and its beginning: every process has it by then, and the last load is gone


class Clients(StrEnum):
    """What clients do: send a whole recording as fast as it is taken, or speak."""

    FILES = "files"
    STREAMS = "streams"


class Arm(StrEnum):
    """Who decodes: the target's modes, and both models in one process per client."""

    TARGET_ONLY = "target-only"
    SYNC = "sync"
    PIPELINED = "pipelined"
    FULL = "full"
    PER_CLIENT = "process-per-client"

    @property
    def mode(self) -> Mode:
        """How its sessions use the draft: models that take turns wait for each other."""
        return Mode.SYNC if self is Arm.PER_CLIENT else Mode(self.value)

    @property
    def is_split(self) -> bool:
        """Whether candidates come from elsewhere."""
        return self not in (Arm.TARGET_ONLY, Arm.PER_CLIENT)


@dataclass(frozen=True, slots=True)
class Load:
    """Clients that transcribe one recording after the other.

    Attributes
    ----------
    gamma, depth : of the drafts; without a gamma each session chooses for itself, as on a draft server.
    seed : of the order of recordings and of the moments at which clients begin.
    stagger_s : within which all begin.
    period_s : what is measured, from then on.
    patience_s : how long answers that are due by its end are waited for.
    pause_s : between two recordings of somebody who speaks.
    """

    clients: Clients
    arm: Arm
    num_sessions: int
    gamma: int | None
    depth: int | None
    seed: int
    stagger_s: float
    period_s: float
    patience_s: float = 10.0
    pause_s: float = 1.0

    @property
    def length(self) -> DraftLength:
        """How far its drafts run ahead."""
        return DraftLength.of(self.arm.mode, self.gamma, self.depth)

    @property
    def duration_s(self) -> float:
        """How long it takes, unless answers are late."""
        return LEAD_S + self.stagger_s + self.period_s


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load came to in its steady period; every count is a sum over its sessions.

    Attributes
    ----------
    num_passes : passes of each session, those with candidates being ``num_verifying``.
    held : tokens in the slots, summed over passes.
    queue_s : from having something to do to the pass.
    lags_s : of every window that was due.
    usage : of the target's process or processes.
    generator_s : processor time of the clients and their drafts; 0 where they share the target's process.
    resident_mb : memory of the target's process or processes at the end.
    """

    load: Load
    num_tokens: int = 0
    num_passes: int = 0
    num_verifying: int = 0
    num_verified: int = 0
    num_accepted: int = 0
    held: int = 0
    queue_s: float = 0.0
    lags_s: tuple[float, ...] = ()
    failures: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    generator_s: float = 0.0
    resident_mb: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens per second of the wall clock."""
        return self.num_tokens / self.load.period_s

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a pass brings one session."""
        return self.num_tokens / self.num_passes if self.num_passes else 0.0

    @property
    def tokens_per_forward(self) -> float:
        """Tokens that a pass brings all sessions in it."""
        return self.num_tokens / self.usage.num_forwards if self.usage.num_forwards else 0.0

    @property
    def tokens_per_decode_s(self) -> float:
        """Tokens per second of the target's processor time, without the encoder."""
        return self.num_tokens / self.usage.decode_s if self.usage.decode_s else 0.0

    @property
    def tokens_per_forward_s(self) -> float:
        """Tokens per second of the target's forward passes alone."""
        return self.num_tokens / self.usage.forward_s if self.usage.forward_s else 0.0

    @property
    def yield_of_blocks(self) -> float:
        """Tokens that a pass with candidates brings one session: the accepted ones and the target's own."""
        return 1 + self.num_accepted / self.num_verifying if self.num_verifying else 1.0

    @property
    def width(self) -> float:
        """Candidates of one session in a pass that has some."""
        return self.num_verified / self.num_verifying if self.num_verifying else 0.0

    @property
    def mean_held(self) -> float:
        """Tokens that a session's slot holds when it takes part in a pass."""
        return self.held / self.num_passes if self.num_passes else 0.0

    @property
    def target_share(self) -> float:
        """Processor time of the target over the wall clock: 1 is a core."""
        return self.usage.cpu_s / self.load.period_s

    @property
    def generator_share(self) -> float:
        """Processor time of the generator over the wall clock."""
        return self.generator_s / self.load.period_s

    def lag_s(self, quantile: float) -> float:
        """Return a quantile of the lags, never less than one that was seen; 0 where nothing was due."""
        return float(np.quantile(self.lags_s, quantile, method="higher")) if self.lags_s else 0.0


def tally(load: Load, logs: Iterable[SessionLog], begin_s: float, end_s: float, now_s: float) -> Outcome:
    """Sum up what clients saw in a period."""
    logs = list(logs)
    passes = [p for log in logs for p in log.passes if begin_s <= p.at_s < end_s]
    return Outcome(
        load,
        num_tokens=sum(p.num_tokens for p in passes),
        num_passes=len(passes),
        num_verifying=sum(p.num_verified > 0 for p in passes),
        num_verified=sum(p.num_verified for p in passes),
        num_accepted=sum(p.num_accepted for p in passes),
        held=sum(p.held for p in passes),
        queue_s=sum(p.queue_ns for p in passes) / 1e9,
        lags_s=tuple(lag for log in logs for lag in log.lags_s(begin_s, end_s, now_s)),
        differences=tuple(line for log in logs for line in log.differences),
    )


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Sum up the parts of one load, which ran at the same time in processes of their own."""
    first, *others = outcomes
    for other in others:
        first = replace(
            first,
            **{name: getattr(first, name) + getattr(other, name) for name in SUMMED},
        )
    return first


SUMMED = (
    *("num_tokens", "num_passes", "num_verifying", "num_verified", "num_accepted", "held", "queue_s"),
    *("lags_s", "failures", "differences", "usage", "generator_s", "resident_mb"),
)
