"""How many tokens a draft sends at once, and how far it gets ahead of the target.

Nothing is estimated. Where a draft waits for each answer, its own confidence ends the block; where it does
not wait, it drafts the whole window, and a block is as short as the time of messages allows. An ablation with
a real pair found no choice by measured times and acceptance that is faster.

=========  ====================================================  ====================================
Mode       A block has                                           The draft is ahead
=========  ====================================================  ====================================
lock-step  at most :data:`MAX_CHOSEN_GAMMA` tokens; it ends      by one block
           once the draft is not sure of all
           (:data:`MIN_CONFIDENCE`)
others     as few tokens as messages allow (:class:`BlockSize`)  as far as the target holds candidates
=========  ====================================================  ====================================

A requested gamma sets the tokens of a block in every mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from numbers import Integral

from specwhisper.errors import InvalidRequest
from specwhisper.types import DEFAULT_MAX_WIDTH, Mode

MAX_GAMMA = 64
MAX_CHOSEN_GAMMA = DEFAULT_MAX_WIDTH  # a longer block takes a second forward pass
FIRST_GAMMA = 5  # before a draft step is measured
MIN_CONFIDENCE = 0.3  # probability, by the draft, that all it drafted in a lock-step block is right
MESSAGE_NS = 200_000  # a server's time for a block without its tokens: coding, gRPC, waking a thread
MESSAGE_SHARE = 0.1  # most of the draft's time that messages may take
SHARED_MESSAGE_SHARE = 0.2  # most of the target's time that all sessions' messages may take
SMOOTHING = 1 / 8  # as in TCP's estimate of round trips (RFC 6298)


@dataclass(frozen=True, slots=True)
class DraftLength:
    """The requested length.

    Attributes
    ----------
    gamma : tokens of a block; ``None`` leaves it to the session.

    Raises
    ------
    InvalidRequest
        if gamma is not a number of tokens, or out of range.
    """

    mode: Mode
    gamma: int | None = None

    def __post_init__(self) -> None:
        if self.gamma is None:
            return
        if not isinstance(self.gamma, Integral):
            raise InvalidRequest(f"gamma is {self.gamma!r}: it must be a whole number.")
        if not 1 <= self.gamma <= MAX_GAMMA:
            raise InvalidRequest(f"gamma is {self.gamma}: it must be between 1 and {MAX_GAMMA} tokens.")

    @property
    def min_confidence(self) -> float:
        """Below it, the draft waits for the answer to its block."""
        return MIN_CONFIDENCE if self.mode.is_lock_step and self.gamma is None else 0.0


class Smoothed:
    """A recent mean; ``None`` before the first value."""

    def __init__(self) -> None:
        self.mean: float | None = None

    def observe(self, value: float) -> None:
        self.mean = value if self.mean is None else self.mean + SMOOTHING * (value - self.mean)


class BlockSize:
    """The size of the blocks of one session.

    A token that waits for others of its block comes late. But a draft that sends each token alone is busy
    with messages, and so is a target that has many sessions.
    """

    def __init__(self, length: DraftLength) -> None:
        self._length = length
        self._draft = Smoothed()
        self._sharing = Smoothed()

    def observe_step(self, forward_ns: int) -> None:
        self._draft.observe(forward_ns)

    def observe_forward(self, num_sessions: int) -> None:
        """Add a forward pass of the target, by its number of sessions."""
        self._sharing.observe(num_sessions)

    @property
    def gamma(self) -> int:
        if self._length.gamma is not None:
            return self._length.gamma
        if self._length.mode.is_lock_step:
            return MAX_CHOSEN_GAMMA
        if self._draft.mean is None:
            return FIRST_GAMMA
        share = min(MESSAGE_SHARE, SHARED_MESSAGE_SHARE / max(1.0, self._sharing.mean or 1.0))
        gamma = ceil(MESSAGE_NS / (share * max(1.0, self._draft.mean)))
        return min(max(1, gamma), MAX_CHOSEN_GAMMA)
