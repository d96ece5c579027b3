"""Choose how far a draft runs ahead, from measured times and acceptance.

Pure: observations go in, a choice comes out, and every choice names its reason. No choice runs away: a block
has at most :data:`MAX_ADAPTIVE_GAMMA` tokens, a draft is ahead no further than an answer takes, and where
drafting gains nothing it pauses, except for a probe now and then.

A gamma, depth or min_confidence that is requested is taken as it is. Otherwise these inputs decide:

==========================  ==========================  =====================================================
input                       measured by                 effect of a larger value
==========================  ==========================  =====================================================
time of a draft step        ``observe_step``            shorter blocks; fewer tokens ahead; pauses sooner
time of a forward pass      ``observe_forward``         lock-step: longer blocks; others: more tokens ahead
time of a token in it       ``observe_forward``         a draft stops sooner (``min_confidence``);
                                                        lock-step: shorter blocks
sessions in a forward pass  ``observe_forward``         longer blocks, so that their messages do not keep the
                                                        target busy; a draft stops sooner, since each token
                                                        delays all of them; lock-step: none
round trip                  ``observe_answer``          lock-step: longer blocks; others: more tokens ahead;
                                                        ``full`` pauses sooner
jitter of the round trip    ``observe_answer``          more tokens ahead; lock-step: none
acceptance by distance      ``observe_tokens``          lock-step: longer blocks; others: more tokens ahead,
                                                        up to the last one that may help; pauses later
realignment                 ``observe_realigned``       ``full``: more tokens ahead; pauses later; stops later
                                                        where it is not sure; others: none
promised acceptance         ``observe_tokens``          lock-step: a draft whose probabilities hold gets twice
                                                        the block and stops where it is no longer sure
tokens committed            ``observe_tokens``          a paused draft probes after :data:`PROBE_TOKENS`
==========================  ==========================  =====================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from specwhisper.speculation.arrivals import Smoothed
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA, DraftLength
from specwhisper.speculation.forward_time import ForwardTime
from specwhisper.speculation.survival import MEMORY, Survival
from specwhisper.speculation.theory import Costs, best_gamma, full_s, sync_s, target_only_s, useful
from specwhisper.types import Mode

# When a choice is made.
CHOOSE_EVERY = 8  # judged tokens
PROBE_TOKENS = 128  # committed tokens until a paused draft tries again
# How short blocks are.
MESSAGE_NS = 200_000  # of each server for a block, without its tokens: coding, gRPC, waking a thread
MESSAGE_SHARE = 0.1  # of the draft's time, at most, for messages
SHARED_MESSAGE_SHARE = 0.2  # of the target's time, at most, for the messages of all its sessions
# How far ahead a draft runs, and whether it does at all.
MIN_SURVIVAL = 0.01  # of the last token that is drafted
FIRST_REALIGNED = 0.3  # before any correction
FIRST_CORRECTIONS = 2  # that :data:`FIRST_REALIGNED` counts as
REALIGNED_MEMORY = 0.95  # of a correction's weight, with every later one
MIN_GAIN = 0.02  # of the target's time, that a draft must save in `full`
# Where a draft stops by its own confidence that all it drafted is right.
FIRST_CONFIDENCE = 0.05  # before anything is measured, in lock-step
MIN_CONFIDENCE, MAX_CONFIDENCE = 1e-4, 0.9
MIN_CALIBRATION = 0.9  # right over promised tokens, of a draft whose confidence ends its blocks


@dataclass(frozen=True, slots=True)
class Estimates:
    """Measurements of a session.

    Attributes
    ----------
    draft_ns : time of a draft step.
    forward_ns, forward_token_ns : the target's forward pass: its constant part, and each token of the
        session.
    round_trip_ns, jitter_ns : from sending a block to receiving its answer, without its time at the target;
        and the mean distance of single ones from that.
    survival : how often the first i drafted tokens are all right, ``survival[0]`` is 1. Distances count from
        the committed end in lock-step, else from the last correction.
    calibration : tokens that were right over those that the draft's probabilities promised.
    num_sharing : sessions in a forward pass of the target, this one included.
    realigned : how often the first token after a correction is the one that was drafted before.
    """

    draft_ns: float
    forward_ns: float
    forward_token_ns: float
    round_trip_ns: float
    jitter_ns: float
    survival: tuple[float, ...]
    calibration: float = 1.0
    num_sharing: float = 1.0
    realigned: float = 0.0

    @property
    def costs(self) -> Costs:
        """The times as the closed forms take them, in seconds."""
        times = (self.draft_ns, self.forward_ns, self.forward_token_ns, self.round_trip_ns)
        return Costs(*(ns / 1e9 for ns in times))


@dataclass(frozen=True, slots=True)
class Choice:
    """How far a draft runs ahead.

    Attributes
    ----------
    gamma : tokens of a block.
    max_ahead : tokens after the committed end; 0 pauses the draft.
    reason : why, in a few words.
    min_confidence : the draft stops, until the next commit, where it is less sure that all it drafted is
        right.
    """

    gamma: int
    max_ahead: int
    reason: str
    min_confidence: float = 0.0


def choose(length: DraftLength, estimates: Estimates | None) -> Choice:
    """Choose for one session; ``None`` for estimates chooses what it begins with."""
    choice = _choose_length(length, estimates)
    if length.min_confidence is not None:
        return replace(choice, min_confidence=length.min_confidence)
    if not length.is_adaptive:
        return choice
    return replace(choice, min_confidence=_min_confidence(length, estimates))


def _min_confidence(length: DraftLength, estimates: Estimates | None) -> float:
    """Return the probability above which one more candidate is worth its cost.

    In lock-step a candidate that is right, with all before it, saves the time of a token. It costs a draft
    step and its place in the forward pass.

    Otherwise it costs its place only, but that of every session that shares the forward pass. If it is right,
    with all before it, it saves a token's time, and the time until the draft has caught up, since a draft
    that stops waits for the answer. If one before it is wrong, it may still continue the text after the
    correction: then it saves its share of that time.
    """
    if estimates is None:  # while the target encodes, only in lock-step does anyone wait for the draft
        return FIRST_CONFIDENCE if length.mode.is_lock_step else MIN_CONFIDENCE
    costs = estimates.costs
    if length.mode.is_lock_step:
        token_s = sync_s(costs, estimates.survival, best_gamma(costs, estimates.survival, MAX_ADAPTIVE_GAMMA))
        return min(MAX_CONFIDENCE, (costs.draft_s + costs.forward_token_s) / max(token_s, 1e-9))
    realigned, forward_s = _realigned(length, estimates), costs.verify_s(0)
    token_s = full_s(costs, estimates.survival, realigned)
    num_tokens = max(1.0, forward_s / max(token_s, 1e-9))  # of a forward pass
    catching_up_s = costs.round_trip_s + min(forward_s, num_tokens * costs.draft_s)
    cost_s = estimates.num_sharing * costs.forward_token_s
    if_right_s, if_realigned_s = token_s + catching_up_s, realigned * catching_up_s / num_tokens
    lowest = (cost_s - if_realigned_s) / max(1e-9, if_right_s - if_realigned_s)
    return min(MAX_CONFIDENCE, max(MIN_CONFIDENCE, lowest))


def _realigned(length: DraftLength, estimates: Estimates) -> float:
    """Return the share of realignments that the mode makes use of."""
    return estimates.realigned if length.mode is Mode.FULL else 0.0


def _choose_length(length: DraftLength, estimates: Estimates | None) -> Choice:
    if estimates is None:
        return Choice(length.gamma, length.gamma * length.first_depth, "nothing is measured yet")
    if length.mode.is_lock_step:
        return _choose_block(length, estimates)
    if length.mode is Mode.FULL and length.is_adaptive:
        with_draft_s = full_s(estimates.costs, estimates.survival, estimates.realigned)
        if with_draft_s > (1 - MIN_GAIN) * target_only_s(estimates.costs):
            return Choice(length.gamma, 0, "paused: the target alone is as fast")
    gamma = _shortest_block(estimates) if length.is_adaptive else length.gamma
    if length.depth is not None:
        return Choice(gamma, gamma * length.depth, "as deep as requested")
    answer_ns = estimates.round_trip_ns + 2 * estimates.jitter_ns + 2 * estimates.forward_ns
    num_awaited = ceil(answer_ns / max(1.0, estimates.draft_ns))  # drafted before an answer can come
    realigned = _realigned(length, estimates)
    num_likely = 0
    while useful(estimates.survival, realigned, num_likely + 1) >= MIN_SURVIVAL:
        num_likely += 1
    if num_awaited <= num_likely:
        return Choice(gamma, num_awaited + gamma, "as far as the draft gets before an answer")
    return Choice(gamma, max(gamma, num_likely), "as far as tokens are likely to help")


def _choose_block(length: DraftLength, estimates: Estimates) -> Choice:
    """Choose in lock-step, where a draft is ahead by one block."""
    if not length.is_adaptive:
        return Choice(length.gamma, length.gamma, "as requested")
    gamma = best_gamma(estimates.costs, estimates.survival, MAX_ADAPTIVE_GAMMA)
    if length.min_confidence is None and estimates.calibration >= MIN_CALIBRATION:
        gamma = min(2 * gamma + 1, MAX_ADAPTIVE_GAMMA)  # the draft's confidence ends the block
    return Choice(gamma, gamma, "shortest time per token for this round trip and acceptance")


def _shortest_block(estimates: Estimates) -> int:
    """Return the shortest block that leaves draft and target time for the models.

    A token that waits for others of its block comes late, but a target that handles messages runs no forward
    passes.
    """
    share = min(MESSAGE_SHARE, SHARED_MESSAGE_SHARE / max(1.0, estimates.num_sharing))
    gamma = ceil(MESSAGE_NS / (share * max(1.0, estimates.draft_ns)))
    return min(max(1, gamma), MAX_ADAPTIVE_GAMMA)


class Controller:
    """Collects a session's observations and updates its choice.

    Attributes
    ----------
    choice, estimates : the current choice and its basis; ``None`` while an estimate is missing.
    """

    def __init__(self, length: DraftLength) -> None:
        self.estimates: Estimates | None = None
        self.choice = choose(length, None)
        self._length = length
        self._draft = Smoothed()
        self._round_trip = Smoothed()
        self._forward = ForwardTime()
        self._sharing = Smoothed()
        self._token_ns = 0
        self._survival = Survival()
        self._realigned = FIRST_REALIGNED
        self._num_corrections = FIRST_CORRECTIONS
        self._num_right = self._num_promised = 0.0
        self._num_judged = self._num_committed = 0  # since the last choice

    def observe_step(self, forward_ns: int) -> None:
        """Add a draft step."""
        self._draft.observe(forward_ns)

    def observe_answer(self, round_trip_ns: int) -> None:
        """Add an answer of the target: how long block and answer were on their way."""
        self._round_trip.observe(round_trip_ns)

    def observe_forward(
        self, num_tokens: int, forward_ns: int, num_sharing: int = 1, token_ns: int = 0
    ) -> None:
        """Add a forward pass: this session's tokens in it, and its sessions.

        Parameters
        ----------
        token_ns : time of one more token by the target's estimate. That knows the tokens of all sessions; 0
            leaves it to this session's own ones.
        """
        self._forward.observe(num_tokens, forward_ns)
        self._sharing.observe(num_sharing)
        self._token_ns = token_ns

    def observe_realigned(self, is_realigned: bool) -> None:
        """Add whether the token after a correction is the one drafted before."""
        self._num_corrections += 1
        weight = max(1 - REALIGNED_MEMORY, 1 / self._num_corrections)  # the mean of all, while they are few
        self._realigned += weight * (is_realigned - self._realigned)

    def observe_tokens(
        self, distances: Sequence[int], probs: Sequence[float], *, num_right: int, num_committed: int
    ) -> None:
        """Add the effect of a commit; choose again if enough has happened.

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
            self._set(Choice(gamma, gamma, "paused, but tries again", min_confidence))
        elif self._num_judged >= CHOOSE_EVERY:
            self.estimates = self._estimate()
            self._set(choose(self._length, self.estimates))

    def _set(self, choice: Choice) -> None:
        self.choice = choice
        self._num_judged = self._num_committed = 0

    def _estimate(self) -> Estimates | None:
        draft_ns, round_trip_ns = self._draft.mean, self._round_trip.mean
        if draft_ns is None or round_trip_ns is None or not self._survival.is_known:
            return None
        token_ns = self._token_ns or self._forward.per_token_ns
        return Estimates(
            draft_ns=draft_ns,
            forward_ns=self._forward.without_tokens_ns(token_ns),
            forward_token_ns=token_ns,
            round_trip_ns=round_trip_ns,
            jitter_ns=self._round_trip.spread,
            survival=self._survival.chances,
            calibration=self._num_right / self._num_promised if self._num_promised else 1.0,
            num_sharing=self._sharing.mean or 1.0,
            realigned=self._realigned,
        )
