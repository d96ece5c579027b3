"""Scenarios: fault and clients of a run, drawn from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from experiments.chaos.requests import Request, draw_demo, draw_file, draw_live
from specwhisper.testing.failpoints import DRAFT_POINTS, TARGET_POINTS, Fault


class Kind(StrEnum):
    """Kinds of faults: of a target, of a draft server, or of the network before them."""

    KILL_AT = "SIGKILL at a failpoint"
    KILL = "SIGKILL"
    KILL_TWICE = "SIGKILL of a target, then of its spare"
    STOP = "SIGSTOP, SIGCONT"
    STOP_LONG = "SIGSTOP, SIGCONT after its sessions have left"
    HALF_OPEN = "half-open network"
    FROZEN = "network silent for a while"
    CUT = "network to all targets cut off for a while"
    CUT_LONG = "network to all targets cut off for half a minute"
    RESET = "connections reset"
    GARBLED = "invalid HTTP/2 on connections to the target"
    LIMIT = "connections reset after some bytes"
    SLOW = "latency, jitter, little bandwidth"
    MESSAGES = "candidates lost, repeated, reordered"
    DRAIN = "SIGTERM"
    DRAIN_AGAIN = "SIGTERM, repeated"
    DRAIN_EXPIRED = "SIGTERM, no other target before the drain timeout"
    DRAIN_SMALL_SPARE = "SIGTERM, a spare with slots for some sessions"
    REDEPLOY = "every target replaced"
    KILL_DRAFT = "SIGKILL of the draft server"
    KILL_DRAFT_AT = "SIGKILL of the draft server at a failpoint"
    STOP_DRAFT = "SIGSTOP, SIGCONT of the draft server"
    STOP_DRAFT_LONG = "SIGSTOP, SIGCONT of the draft server after its clients have left"
    HALF_OPEN_DRAFT = "half-open network to the draft server"
    CUT_DRAFT = "network to the draft server cut off for a while"
    RESET_DRAFT = "connections to the draft server reset"
    DRAIN_DRAFT = "SIGTERM of the draft server"
    HANG_DRAFT = "hung draft engine"


# The session migrates to the spare at once.
WITH_SPARE = {
    Kind.KILL_AT,
    Kind.KILL,
    Kind.KILL_TWICE,
    Kind.RESET,
    Kind.GARBLED,
    Kind.LIMIT,
    Kind.DRAIN,
    Kind.DRAIN_AGAIN,
    Kind.REDEPLOY,
}
# Only the silence timeout detects it.
SILENT = {Kind.STOP_LONG, Kind.HALF_OPEN, Kind.STOP_DRAFT_LONG, Kind.HALF_OPEN_DRAFT, Kind.HANG_DRAFT}
# A failpoint of the server causes it.
AT_POINTS = {Kind.KILL_AT, Kind.KILL_DRAFT_AT, Kind.HANG_DRAFT}
AT_DRAFT_POINTS = {Kind.KILL_DRAFT_AT, Kind.HANG_DRAFT}
HANG_POINT = "draft.before"
MAX_HIT, MAX_HANG_HIT = 40, 400  # early in the first sessions, up to the middle of all
# Clients resume at another draft server.
WITHOUT_DRAFT = {Kind.KILL_DRAFT, Kind.KILL_DRAFT_AT, Kind.RESET_DRAFT, Kind.DRAIN_DRAFT}
# A second draft server runs and is listed from the start.
SPARE_DRAFT = {Kind.STOP_DRAFT_LONG, Kind.HALF_OPEN_DRAFT, Kind.RESET_DRAFT, Kind.DRAIN_DRAFT}
# A client resumes in another call.
LOSES_DRAFT = {*WITHOUT_DRAFT, Kind.STOP_DRAFT_LONG, Kind.HALF_OPEN_DRAFT, Kind.CUT_DRAFT}
# The only draft server may be killed before every client has started.
NO_DRAFT_SERVER = {Kind.KILL_DRAFT_AT}
# The fault ends by itself; sessions then continue.
PASSING = {Kind.STOP, Kind.FROZEN, Kind.CUT, Kind.CUT_LONG, Kind.STOP_DRAFT, Kind.CUT_DRAFT}
LASTS_S = {
    Kind.STOP: (10.0,),
    Kind.FROZEN: (1.0, 5.0),
    Kind.CUT: (1.0, 5.0),
    Kind.CUT_LONG: (30.0,),
    Kind.STOP_DRAFT: (10.0,),
    Kind.CUT_DRAFT: (1.0, 5.0),
}
SMALL_SPARE_SLOTS = 2
SHORT_DRAIN_S = 0.5  # shorter than sessions
SHORT_DRAIN = {Kind.DRAIN_EXPIRED, Kind.DRAIN_DRAFT}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Fault and clients of one run.

    Attributes
    ----------
    point, hit : failpoint at which a server kills itself or hangs, and on which hit.
    delay_s : time from the start of all sessions to the fault.
    lasts_s : duration of a fault that ends by itself.
    num_bytes : bytes before the network resets.
    spare_slots : slots of the spare; 0 for enough.
    drain_timeout_s : drain timeout of the first target and of draft servers.
    is_demo : whether the demo pair replaces the scripted models.
    """

    seed: int
    kind: Kind
    clients: tuple[Request, ...]
    point: str = ""
    hit: int = 0
    delay_s: float = 0.0
    lasts_s: float = 0.0
    num_bytes: int = 0
    spare_slots: int = 0
    drain_timeout_s: float = 30.0
    is_demo: bool = False

    @property
    def failpoints(self) -> str:
        """Value of the failpoint variable in the failing server's environment."""
        fault = Fault.HANG if self.kind is Kind.HANG_DRAFT else Fault.KILL
        return f"{self.point}={fault}@{self.hit}" if self.point else ""

    def __str__(self) -> str:
        at = f" {self.point}, hit {self.hit}" if self.point else f" after {self.delay_s:.1f} s"
        return f"seed {self.seed}: {self.kind}{at}{f' for {self.lasts_s:g} s' if self.lasts_s else ''}"


Plan = tuple[Kind, str]  # kind and failpoint, if any
EVERY: tuple[Plan, ...] = (
    *((Kind.KILL_AT, point) for point in TARGET_POINTS),
    *((Kind.KILL_DRAFT_AT, point) for point in DRAFT_POINTS),
    (Kind.HANG_DRAFT, HANG_POINT),
    *((kind, "") for kind in Kind if kind not in AT_POINTS),
)
# Kinds that take long, or are parts of other kinds, are left out of a quick run of two minutes.
NOT_QUICK = {
    *SILENT,
    Kind.STOP,
    Kind.STOP_DRAFT,
    Kind.FROZEN,
    Kind.CUT_LONG,
    Kind.MESSAGES,
    Kind.DRAIN,
    Kind.DRAIN_DRAFT,
}
QUICK: tuple[Plan, ...] = tuple(
    (kind, point) for kind, point in EVERY if kind not in NOT_QUICK and not point.endswith(".after")
)


def scenarios(
    num: int, first_seed: int, *, plans: Sequence[Plan] = EVERY, is_demo: bool = False
) -> list[Scenario]:
    """Draw scenarios: plans in turn, the rest at random."""
    seeds = range(first_seed, first_seed + num)
    return [draw(seed, *plans[number % len(plans)], is_demo=is_demo) for number, seed in enumerate(seeds)]


def draw(seed: int, kind: Kind, point: str = "", *, is_demo: bool = False) -> Scenario:
    """Draw a scenario of a kind."""
    random = Random(f"{seed} {kind} {point}")
    clients: list[Request] = [draw_demo(random) for _ in range(3)] if is_demo else []
    if not is_demo:
        clients += [draw_live(random) for _ in range(2)]
        clients += [draw_file(random) for _ in range(3)]
    return Scenario(
        seed,
        kind,
        tuple(clients),
        point,
        hit=random.randint(1, MAX_HANG_HIT if kind is Kind.HANG_DRAFT else MAX_HIT) if point else 0,
        delay_s=random.uniform(0, 0.8),
        lasts_s=random.choice(LASTS_S.get(kind, (0.0,))),
        num_bytes=random.randint(1_000, 400_000) if kind is Kind.LIMIT else 0,
        spare_slots=SMALL_SPARE_SLOTS if kind is Kind.DRAIN_SMALL_SPARE else 0,
        drain_timeout_s=SHORT_DRAIN_S if kind in SHORT_DRAIN else 30.0,
        is_demo=is_demo,
    )
