"""How far a session's draft runs ahead, and in what portions: chosen from what was measured, and explained.

Pure: it is told what happened and gives a choice. Nothing in it can run away: a block holds at most
:data:`MAX_ADAPTIVE_GAMMA` tokens, a draft is ahead no further than an answer takes, and where drafting brings
nothing it stops but for a probe now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from specwhisper.speculation.arrivals import Smoothed
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA, DraftLength
from specwhisper.speculation.forward_time import ForwardTime
from specwhisper.speculation.theory import Costs, best_gamma, full_s, sync_s, target_only_s
from specwhisper.types import Mode

MESSAGE_NS = 200_000  # what a block costs each server beside its tokens: coding, gRPC, a thread to wake
MESSAGE_SHARE = 0.1  # of the draft's time that messages may take
SHARED_MESSAGE_SHARE = 0.2  # of the target's, those of all its sessions
MIN_SURVIVAL = 0.01  # of a token; behind that a chain is not followed
MIN_CONFIDENCE = 1e-4  # below which no draft is followed
FIRST_CONFIDENCE = 0.05  # below which a draft stops while nothing is measured
MAX_CONFIDENCE = 0.9  # that is asked of any draft
MIN_CALIBRATION = 0.9  # of a draft that is believed when it says how sure it is
MIN_GAIN = 0.02  # of the target's time, below which a draft is not worth its own
CHOOSE_EVERY = 8  # tokens that were judged
PROBE_TOKENS = 128  # that are committed before a paused draft tries again
MAX_DISTANCE = 64
MEMORY = 0.995  # of an acceptance, with every later judgement
PRIOR = 4.0  # judgements of the mean that each distance begins with


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is known of a session.

    Attributes
    ----------
    draft_ns : a step of the draft.
    forward_ns, forward_token_ns : a pass of the target: its constant part, and each token of this session.
    round_trip_ns, jitter_ns : from a block sent to its answer heard, without the time it lay at the target;
        and how far single ones lie from that.
    survival : how often the first i drafted tokens are all right, ``survival[0]`` is 1: behind the known end
        where the draft waits for answers, else behind the last correction.
    calibration : tokens that were right over those that the draft's probabilities promised.
    num_sharing : sessions in a pass of the target, this one included.
    """

    draft_ns: float
    forward_ns: float
    forward_token_ns: float
    round_trip_ns: float
    jitter_ns: float
    survival: tuple[float, ...]
    calibration: float = 1.0
    num_sharing: float = 1.0

    @property
    def costs(self) -> Costs:
        """The same as the closed forms take it."""
        times = (self.draft_ns, self.forward_ns, self.forward_token_ns, self.round_trip_ns)
        return Costs(*(ns / 1e9 for ns in times))


@dataclass(frozen=True, slots=True)
class Choice:
    """What a draft does.

    Attributes
    ----------
    gamma : tokens of a block.
    max_ahead : tokens beyond the committed end; 0 pauses the draft.
    reason : why, in a few words.
    min_confidence : that all drafted tokens are right, below which the draft stops until it hears more.
    """

    gamma: int
    max_ahead: int
    reason: str
    min_confidence: float = 0.0


def choose(length: DraftLength, estimates: Estimates | None) -> Choice:
    """Choose for one session; without estimates, what it begins with."""
    choice = _choose_length(length, estimates)
    if length.min_confidence is not None:
        return replace(choice, min_confidence=length.min_confidence)
    if not length.is_adaptive:
        return choice
    return replace(
        choice, min_confidence=_worth_drafting(length, estimates) if estimates else FIRST_CONFIDENCE
    )


def _worth_drafting(length: DraftLength, estimates: Estimates) -> float:
    """Give the probability from which on one more candidate saves more than it costs.

    Where blocks wait for each other, one that is right with all before it saves a token's time, and costs
    a step of the draft and its place in the pass. Else it costs its place only, and one that is right but was
    not drafted comes when the draft has heard that those before it were right: a round trip and a pass later.
    """
    costs = estimates.costs
    if length.mode.is_lock_step:
        token_s = sync_s(costs, estimates.survival, best_gamma(costs, estimates.survival, MAX_ADAPTIVE_GAMMA))
        return min(MAX_CONFIDENCE, (costs.draft_s + costs.forward_token_s) / max(token_s, 1e-9))
    saved_s = full_s(costs, estimates.survival) + costs.round_trip_s + costs.verify_s(0)
    return min(MAX_CONFIDENCE, max(MIN_CONFIDENCE, costs.forward_token_s / max(saved_s, 1e-9)))


def _choose_length(length: DraftLength, estimates: Estimates | None) -> Choice:
    if estimates is None:
        return Choice(length.gamma, length.gamma * length.first_depth, "nothing is measured yet")
    if length.mode.is_lock_step:
        if not length.is_adaptive:
            return Choice(length.gamma, length.gamma, "as asked for")
        gamma = best_gamma(estimates.costs, estimates.survival, MAX_ADAPTIVE_GAMMA)
        if length.min_confidence is None and estimates.calibration >= MIN_CALIBRATION:
            # The block ends where the draft is no longer sure.
            gamma = min(2 * gamma + 1, MAX_ADAPTIVE_GAMMA)
        return Choice(gamma, gamma, "shortest time per token for this round trip and acceptance")
    if length.mode is Mode.FULL and length.is_adaptive:
        alone_s = target_only_s(estimates.costs)
        if full_s(estimates.costs, estimates.survival) > (1 - MIN_GAIN) * alone_s:
            return Choice(length.gamma, 0, "paused: the target alone is as fast")
    gamma = _portion(estimates) if length.is_adaptive else length.gamma
    if length.depth is not None:
        return Choice(gamma, gamma * length.depth, "as deep as asked for")
    answer_ns = estimates.round_trip_ns + 2 * estimates.jitter_ns + 2 * estimates.forward_ns
    awaited = ceil(answer_ns / max(1.0, estimates.draft_ns))  # drafted before an answer can come
    likely = sum(chance >= MIN_SURVIVAL for chance in estimates.survival[1:])
    if awaited <= likely:
        return Choice(gamma, awaited + gamma, "as far as the draft gets before an answer")
    return Choice(gamma, max(gamma, likely), "as far as tokens are likely to be right")


def _portion(estimates: Estimates) -> int:
    """Give blocks as short as messages allow, here and where all sessions' come together.

    A token that waits for others comes late, but a target that handles messages runs no passes.
    """
    share = min(MESSAGE_SHARE, SHARED_MESSAGE_SHARE / max(1.0, estimates.num_sharing))
    gamma = ceil(MESSAGE_NS / (share * max(1.0, estimates.draft_ns)))
    return min(max(1, gamma), MAX_ADAPTIVE_GAMMA)


class Survival:
    """How often a draft is right, by how many tokens behind where it was known to be: ratios of sums."""

    def __init__(self) -> None:
        self._kept = np.zeros(MAX_DISTANCE)
        self._judged = np.zeros(MAX_DISTANCE)

    def observe(self, distances: Sequence[int], *, num_right: int) -> None:
        """Note what became of tokens drafted at these distances: the first were right."""
        self._kept *= MEMORY ** len(distances)
        self._judged *= MEMORY ** len(distances)
        for place, distance in enumerate(distances):
            self._kept[min(distance, MAX_DISTANCE - 1)] += place < num_right
            self._judged[min(distance, MAX_DISTANCE - 1)] += 1

    @property
    def is_known(self) -> bool:
        """Whether anything was judged."""
        return bool(self._judged.any())

    @property
    def chances(self) -> tuple[float, ...]:
        """How often the first i are all right, from 1 on."""
        mean = self._kept.sum() / self._judged.sum()
        rates = (self._kept + PRIOR * mean) / (self._judged + PRIOR)
        return (1.0, *np.cumprod(rates).tolist())


class Controller:
    """Gathers what a session tells, and chooses now and then.

    Attributes
    ----------
    choice, estimates : the last choice, and what it was made from; ``None`` while something is not known.
    """

    def __init__(self, length: DraftLength) -> None:
        self.estimates: Estimates | None = None
        self.choice = choose(length, None)
        self._length = length
        self._draft = Smoothed()
        self._round_trip = Smoothed()
        self._passes = ForwardTime()
        self._sharing = Smoothed()
        self._survival = Survival()
        self._num_right = self._num_promised = 0.0
        self._num_judged = 0  # since the last choice
        self._num_committed = 0

    def observe_step(self, forward_ns: int) -> None:
        """Note a step of the draft."""
        self._draft.observe(forward_ns)

    def observe_answer(self, round_trip_ns: int) -> None:
        """Note an answer of the target's: how long block and answer were on their way."""
        self._round_trip.observe(round_trip_ns)

    def observe_forward(self, num_tokens: int, forward_ns: int, num_sharing: int = 1) -> None:
        """Note a pass over so many tokens of this session, and how many sessions shared it."""
        self._passes.observe(num_tokens, forward_ns)
        self._sharing.observe(num_sharing)

    def observe_tokens(
        self, distances: Sequence[int], probs: Sequence[float], *, num_right: int, num_committed: int
    ) -> None:
        """Note what was committed, and choose anew where enough has happened.

        Parameters
        ----------
        distances, probs : of the drafted tokens that it judges, in order; the first ``num_right`` were right.
        """
        self._survival.observe(distances, num_right=num_right)
        memory = MEMORY ** len(probs)
        self._num_right = memory * self._num_right + num_right
        self._num_promised = memory * self._num_promised + sum(probs)
        self._num_judged += len(distances)
        self._num_committed += num_committed
        if not self.choice.max_ahead and self._num_committed >= PROBE_TOKENS:
            gamma, min_confidence = self._length.gamma, self._length.min_confidence or 0.0
            self._take(Choice(gamma, gamma, "paused, but tries again", min_confidence))
        elif self._num_judged >= CHOOSE_EVERY:
            self.estimates = self._estimates()
            self._take(choose(self._length, self.estimates))

    def _take(self, choice: Choice) -> None:
        self.choice = choice
        self._num_judged = self._num_committed = 0

    def _estimates(self) -> Estimates | None:
        draft_ns, round_trip_ns = self._draft.mean, self._round_trip.mean
        if draft_ns is None or round_trip_ns is None or not self._survival.is_known:
            return None
        return Estimates(
            draft_ns=draft_ns,
            forward_ns=self._passes.constant_ns or self._passes.mean_ns,
            forward_token_ns=self._passes.per_token_ns,
            round_trip_ns=round_trip_ns,
            jitter_ns=self._round_trip.spread,
            survival=self._survival.chances,
            calibration=self._num_right / self._num_promised if self._num_promised else 1.0,
            num_sharing=self._sharing.mean or 1.0,
        )
