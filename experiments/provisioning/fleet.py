"""Sessions of a fleet second by second: a target is lost, or more sessions begin than before.

Sessions of a lost target ask for a slot every second, and new ones are refused while all targets are full, as
draft servers do. A target loads its model for a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from specwhisper_deploy.scaling import BySessions

LOAD_S = 60
NOTICED_S = 5  # until Ray sees a dead replica, or more sessions
RESUME_TIMEOUT_S = 60  # --resume-timeout
SESSION_S = 600  # mean length of a session
LOST_AT_S, END_S = 30, 400
GROWS_S = 300


@dataclass(frozen=True, slots=True)
class Fleet:
    """Equal targets.

    Attributes
    ----------
    num_targets : that run at first, and take sessions.
    sessions_per_target : slots of each.
    num_standby : loaded targets that take sessions only when one is lost (``--standby``).
    encode_s : to encode a window again for a session that resumes.
    """

    num_targets: int
    sessions_per_target: int
    num_standby: int = 0
    encode_s: float = 0.005

    @property
    def num_slots(self) -> int:
        """Slots of the targets that take sessions."""
        return self.num_targets * self.sessions_per_target


@dataclass(slots=True)
class Outcome:
    """Waits and refusals of clients.

    Attributes
    ----------
    waits_s : of each session of the lost target until it continues.
    num_ended : sessions of the lost target that found no slot within a minute.
    num_begun, num_refused : sessions that asked to begin, and of those refused once.
    """

    waits_s: list[float] = field(default_factory=list)
    num_ended: int = 0
    num_begun: int = 0
    num_refused: int = 0


def lose_one(fleet: Fleet, num_sessions: int, *, seed: int) -> Outcome:
    """Lose a target; another one is started in its place."""
    random, outcome = np.random.default_rng(seed), Outcome()
    active, slots = num_sessions, fleet.num_slots
    waiting: list[float] = []  # when each lost its target
    for now_s in range(END_S):
        if now_s == LOST_AT_S:
            lost = round(active / fleet.num_targets)
            active, slots = active - lost, slots - fleet.sessions_per_target
            slots += min(fleet.num_standby, 1) * fleet.sessions_per_target
            waiting = [float(now_s)] * lost
        if now_s == LOST_AT_S + NOTICED_S + LOAD_S:
            slots += (1 - min(fleet.num_standby, 1)) * fleet.sessions_per_target
        active -= random.binomial(active, 1 / SESSION_S) if active else 0
        num_free = max(0, slots - active)
        num_resumed = min(len(waiting), num_free)
        # Those with most free slots take them: about so many have any.
        others = max(1, num_free // fleet.sessions_per_target)
        for rank in range(num_resumed):
            outcome.waits_s.append(now_s - waiting[rank] + fleet.encode_s * (1 + rank // others))
        waiting, active = waiting[num_resumed:], active + num_resumed
        if waiting and now_s - waiting[0] >= RESUME_TIMEOUT_S:
            outcome.num_ended, waiting = outcome.num_ended + len(waiting), []
        asked = random.poisson(num_sessions / SESSION_S)
        taken = min(asked, max(0, slots - active))
        active += taken
        outcome.num_begun += asked
        outcome.num_refused += asked - taken
    return outcome


def grow(fleet: Fleet, num_sessions: int, *, factor: float, policy: BySessions, seed: int) -> Outcome:
    """Let more and more sessions begin, in five minutes to ``factor`` times as many; Ray starts targets."""
    random, outcome = np.random.default_rng(seed), Outcome()
    active, ready = num_sessions, fleet.num_targets
    starting: list[int] = []  # when each is ready
    for now_s in range(END_S):
        ready += sum(at == now_s for at in starting)
        starting = [at for at in starting if at > now_s]
        wanted = policy.num_replicas({0: active}, {})
        starting += [now_s + NOTICED_S + LOAD_S] * (wanted - ready - len(starting))
        active -= random.binomial(active, 1 / SESSION_S) if active else 0
        more = 1 + (factor - 1) * min(1.0, now_s / GROWS_S)
        # To have so many sessions open, new ones replace those that end, and add to them.
        asked = random.poisson(num_sessions * (more / SESSION_S + (factor - 1) / GROWS_S * (now_s < GROWS_S)))
        taken = min(asked, max(0, ready * fleet.sessions_per_target - active))
        active += taken
        outcome.num_begun += asked
        outcome.num_refused += asked - taken
    return outcome


def many(run: Callable[[int], Outcome], times: int) -> Outcome:
    """Join several runs, each with a seed of its own."""
    joined = Outcome()
    for seed in range(times):
        one = run(seed)
        joined.waits_s += one.waits_s
        joined.num_ended += one.num_ended
        joined.num_begun += one.num_begun
        joined.num_refused += one.num_refused
    return joined
