"""How sessions share a target's forward passes.

A forward pass reads the model's weights once for all sessions, so usually all take part. The number of tokens
is limited, so that no session waits for a forward pass that takes too long.

=====================  ================================================================
:func:`next_batch`     which sessions take part in the next one, with which candidates
:class:`BatchTime`     what one more token adds to its time
:class:`FreeSlots`,    whether one more session fits
:class:`ResponseTime`
=====================  ================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specwhisper.errors import ServerFull


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens that a session wants to append.

    Attributes
    ----------
    num_needed : tokens that its slot lacks, at least one.
    num_candidates : candidates to verify after them.
    num_missed : forward passes since its last one in which it was runnable and took no part.
    """

    num_needed: int
    num_candidates: int
    num_missed: int = 0


def next_batch(requests: Sequence[Request], max_tokens: int) -> dict[int, int]:
    """Choose the sessions of the next forward pass.

    Return the indices of the requests that take part, in order, and how many of their candidates do.

    Requests that missed most forward passes have priority. Candidates beyond ``max_tokens`` are left out, but
    never the tokens that a slot lacks: more than ``max_tokens`` only fit if the first request needs them.
    """
    parts: dict[int, int] = {}
    room = max_tokens
    for index in sorted(range(len(requests)), key=lambda index: -requests[index].num_missed):
        request = requests[index]
        if parts and request.num_needed > room:
            continue
        room -= request.num_needed
        num_candidates = max(0, min(request.num_candidates, room))
        room -= num_candidates
        parts[index] = num_candidates
    return dict(sorted(parts.items()))


SMOOTHING = 0.05  # weight of the latest response


class FreeSlots:
    """The slots of a model that no session holds."""

    def __init__(self, num_slots: int, server: str) -> None:
        self.num_slots = num_slots
        self._server = server
        self._free = list(reversed(range(num_slots)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """Take a slot; raise :class:`ServerFull` if none is free."""
        self.check_free()
        return self._free.pop()

    def check_free(self) -> None:
        """Raise :class:`ServerFull` if no slot is free."""
        if not self._free:
            raise ServerFull(f"{self._server} holds its {self.num_slots} sessions already: try again later.")

    def give_back(self, slot: int) -> None:
        self._free.append(slot)


class ResponseTime:
    """Recent mean response time, from the moment a session has work to its commit.

    The encoder's time is not part of it, because no forward pass waits for the encoder.
    """

    def __init__(self, budget_ms: float | None = None) -> None:
        self.budget_ms = budget_ms
        self.mean_ms = 0.0
        self._mean_sessions = 0.0

    def observe(self, response_ns: int, num_sessions: int) -> None:
        weight = SMOOTHING if self._mean_sessions else 1
        self.mean_ms += (response_ns / 1e6 - self.mean_ms) * weight
        self._mean_sessions += (num_sessions - self._mean_sessions) * weight

    def expected_ms(self, num_sessions: int) -> float:
        """Estimate the response time with a number of sessions: proportional to it."""
        return self.mean_ms * num_sessions / self._mean_sessions if self._mean_sessions else 0.0

    def has_room(self, num_sessions: int) -> bool:
        """Return whether one more session keeps the budget; the first one does."""
        if self.budget_ms is None or num_sessions == 0:
            return True
        return self.expected_ms(num_sessions + 1) <= self.budget_ms


FORWARD_DECAY = 1 - 1 / 256  # share of a forward pass's weight that each later one leaves
ENGINE_NS = 200_000  # a session's time between two forward passes: engine and messages
MIN_VARIANCE = 1.0  # variance of the numbers of tokens below which a token's time is unknown
PRIOR_VARIANCE = 0.05  # variance of the numbers of sessions below which they count as equal


class BatchTime:
    """Least squares over a target's forward passes: time by sessions and tokens. Recent ones count more.

    Attributes
    ----------
    token_ns : time that one more token takes; 0 until it is known.
    token_share : the same over its session's part of a forward pass without tokens: at most 1.
    """

    def __init__(self) -> None:
        self.token_ns = self.token_share = 0.0
        self._weight = 0.0
        self._sessions = self._tokens = self._ns = 0.0  # means
        self._var_sessions = self._var_tokens = self._cov = 0.0
        self._cov_sessions_ns = self._cov_tokens_ns = 0.0

    def observe(self, num_sessions: int, num_tokens: int, forward_ns: float) -> None:
        self._weight = FORWARD_DECAY * self._weight + 1
        gain = 1 / self._weight
        keep = 1 - gain
        sessions, tokens, ns = num_sessions - self._sessions, num_tokens - self._tokens, forward_ns - self._ns
        self._sessions += gain * sessions
        self._tokens += gain * tokens
        self._ns += gain * ns
        self._var_sessions = keep * (self._var_sessions + gain * sessions**2)
        self._var_tokens = keep * (self._var_tokens + gain * tokens**2)
        self._cov = keep * (self._cov + gain * sessions * tokens)
        self._cov_sessions_ns = keep * (self._cov_sessions_ns + gain * sessions * ns)
        self._cov_tokens_ns = keep * (self._cov_tokens_ns + gain * tokens * ns)
        if self._var_tokens >= MIN_VARIANCE:
            var_sessions = self._var_sessions + PRIOR_VARIANCE
            solved_ns = var_sessions * self._cov_tokens_ns - self._cov * self._cov_sessions_ns
            self.token_ns = max(0.0, solved_ns / (var_sessions * self._var_tokens - self._cov**2))
        session_ns = (self._ns - self.token_ns * self._tokens) / num_sessions + ENGINE_NS
        self.token_share = self.token_ns / max(self.token_ns, session_ns)
