"""Decide when a session leaves a slow target, by its pace and others' offers.

Pure: times are arguments.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from statistics import mean

from specwhisper.types import NS_PER_S, Timing

FIRST_S = 5.0  # shortest time on a target before others are asked; doubled each time that they are
MAX_STAY_S = 240.0
MIN_ANSWERS, MAX_ANSWERS = 4, 8  # a pace is judged by several, since a single one may be slow
RATIO, SLOW_S = 3.0, 0.1  # by which factor and how many seconds a move must shorten answers
REGAINED_AFTER = 10  # answers that must save the cost of a move, which is encoding the window again


class Pace:
    """Follows one session's answers, on one target after another.

    A session cannot go back and forth: it stays for a while after each move, and longer each time.

    ``draw``: returns a random number from 0 to 1, so that sessions that began together don't move
    together.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._answers_s: deque[float] = deque(maxlen=MAX_ANSWERS)
        self._encode_s = 0.0
        self._stay_s = FIRST_S
        self._ask_s = 0.0
        self._draw = draw

    @property
    def answer_s(self) -> float:
        """Mean time of the target's last answers without the slowest; 0 while there are few."""
        return mean(sorted(self._answers_s)[:-1]) if len(self._answers_s) >= MIN_ANSWERS else 0.0

    def begin(self, now_s: float) -> None:
        self._answers_s.clear()
        self._ask_s = now_s + self._stay_s * (1 + self._draw())

    def observe(self, timing: Timing) -> None:
        """Add the time of a target's answer, without the network."""
        if timing.forward_ns:
            self._answers_s.append((timing.queue_ns + timing.forward_ns) / NS_PER_S)
            self._encode_s = timing.encode_ns / NS_PER_S or self._encode_s

    def asks_others(self, now_s: float) -> bool:
        """Return whether the target is slow and others should be asked now."""
        if now_s < self._ask_s or self.answer_s < SLOW_S:
            return False
        self._stay_s = min(2 * self._stay_s, MAX_STAY_S)
        self._ask_s = now_s + self._stay_s * (1 + self._draw())
        return True

    @property
    def worth_a_move_s(self) -> float:
        """Longest answer time of another target for which a move pays.

        The other target is assumed to encode as much faster as it answers.
        """
        if not self.answer_s:
            return 0.0
        num_encoding = self._encode_s / self.answer_s  # answers in the time of an encoding, on any target
        return min((self.answer_s - SLOW_S) / RATIO, self.answer_s / (1 + num_encoding / REGAINED_AFTER))
