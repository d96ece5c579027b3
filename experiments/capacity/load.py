"""A load on the target and its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from experiments.capacity.log import SessionLog
from experiments.capacity.usage import Usage
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode

LEAD_S = 1.0  # from command to start: every process has received it, and the previous load is gone


class Clients(StrEnum):
    """Kinds of clients: whole recordings as fast as accepted, or live audio."""

    FILES = "files"
    STREAMS = "streams"


class Arm(StrEnum):
    """Arms: the target's modes, and both models in one process per client."""

    TARGET_ONLY = "target-only"
    SYNC = "sync"
    PIPELINED = "pipelined"
    FULL = "full"
    PER_CLIENT = "process-per-client"

    @property
    def mode(self) -> Mode:
        """Mode of its sessions; two models in one process take turns."""
        return Mode.SYNC if self is Arm.PER_CLIENT else Mode(self.value)

    @property
    def is_split(self) -> bool:
        """Whether another server drafts."""
        return self not in (Arm.TARGET_ONLY, Arm.PER_CLIENT)


@dataclass(frozen=True, slots=True)
class Load:
    """Clients that transcribe recordings in turn.

    Attributes
    ----------
    gamma : tokens of a block; without one each session chooses, as on a draft server.
    seed : seed of the order of recordings and of the clients' start times.
    stagger_s : time within which all clients start.
    period_s : measured period, from then on.
    answer_timeout_s : time to wait for answers due by the end of the period.
    pause_s : pause between two recordings of a live client.
    """

    clients: Clients
    arm: Arm
    num_sessions: int
    gamma: int | None
    seed: int
    stagger_s: float
    period_s: float
    answer_timeout_s: float = 10.0
    pause_s: float = 1.0

    @property
    def length(self) -> DraftLength:
        """Draft length of its sessions."""
        return DraftLength(self.arm.mode, self.gamma)

    @property
    def duration_s(self) -> float:
        """Duration, unless answers are late."""
        return LEAD_S + self.stagger_s + self.period_s


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a load in its steady period; counts are sums over its sessions.

    Attributes
    ----------
    num_passes : forward passes of each session, of which ``num_verifying`` had candidates.
    held : tokens in the slots, summed over forward passes.
    queue_s : time from work being ready to the forward pass.
    lags_s : lags of all windows that were due.
    usage : usage of the target's process or processes.
    generator_s : CPU time of clients and drafts; 0 in the target's process.
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
        """Committed tokens per second of wall time."""
        return self.num_tokens / self.load.period_s

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of one session per forward pass."""
        return self.num_tokens / self.num_passes if self.num_passes else 0.0

    @property
    def tokens_per_forward(self) -> float:
        """Tokens of all sessions per forward pass."""
        return self.num_tokens / self.usage.num_forwards if self.usage.num_forwards else 0.0

    @property
    def tokens_per_decode_s(self) -> float:
        """Tokens per CPU second of the target, without the encoder."""
        return self.num_tokens / self.usage.decode_s if self.usage.decode_s else 0.0

    @property
    def tokens_per_forward_s(self) -> float:
        """Tokens per second of the target's forward passes."""
        return self.num_tokens / self.usage.forward_s if self.usage.forward_s else 0.0

    @property
    def yield_of_blocks(self) -> float:
        """Tokens of one session per forward pass with candidates: accepted ones and the correction."""
        return 1 + self.num_accepted / self.num_verifying if self.num_verifying else 1.0

    @property
    def width(self) -> float:
        """Candidates of one session per forward pass with candidates."""
        return self.num_verified / self.num_verifying if self.num_verifying else 0.0

    @property
    def mean_held(self) -> float:
        """Mean number of tokens in a session's slot at a forward pass."""
        return self.held / self.num_passes if self.num_passes else 0.0

    @property
    def target_share(self) -> float:
        """CPU time of the target per wall time: 1 is a core."""
        return self.usage.cpu_s / self.load.period_s

    @property
    def generator_share(self) -> float:
        """CPU time of the generator per wall time."""
        return self.generator_s / self.load.period_s

    def lag_s(self, quantile: float) -> float:
        """Return a quantile of the lags, rounded up to a measured one; 0 if no window was due."""
        return float(np.quantile(self.lags_s, quantile, method="higher")) if self.lags_s else 0.0


def tally(load: Load, logs: Iterable[SessionLog], begin_s: float, end_s: float, now_s: float) -> Outcome:
    """Sum up the clients' logs over a period."""
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
    """Sum up the parts of one load that ran in parallel processes."""
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
