"""Choose which sessions take part in a target's next forward pass.

The rules are pure: :mod:`specwhisper.speculation.throughput` and ``scheduling``. Here they are applied to
sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from specwhisper.engine.verifier_state import VerifierState
from specwhisper.speculation.forward_time import BatchTime
from specwhisper.speculation.scheduling import next_batch
from specwhisper.speculation.throughput import Throughput


class Batching:
    """Follows a target's forward passes, and chooses the next one.

    Parameters
    ----------
    length : returns the tokens that a slot holds.
    clock : returns the time in nanoseconds.
    max_width : most draft tokens of a session in a forward pass.
    max_num_tokens : most tokens in a forward pass.

    Attributes
    ----------
    time : of forward passes.
    """

    def __init__(
        self,
        length: Callable[[int], int],
        clock: Callable[[], int],
        *,
        max_width: int,
        max_num_tokens: int,
    ) -> None:
        self.time = BatchTime()
        self._length = length
        self._clock = clock
        self._throughput = Throughput(self.time)
        self._max_width = max_width
        self._max_num_tokens = max_num_tokens
        self._forward_ns = self._last_end_ns = 0  # of the last forward pass

    def observe_forward(self, widths: Sequence[int], started_ns: int, forward_ns: int) -> None:
        """Add a forward pass, with the tokens of each session."""
        self._forward_ns, self._last_end_ns = forward_ns, started_ns + forward_ns
        self.time.observe(len(widths), sum(widths), forward_ns)

    def observe_committed(self, num_tokens: int) -> None:
        """Add the tokens that the last forward pass brought."""
        self._throughput.observe(num_tokens, self._forward_ns, self._last_end_ns)

    def choose(self, sessions: Collection[VerifierState]) -> dict[VerifierState, int]:
        """Return the sessions of the next forward pass, with their numbers of candidates."""
        runnable = self._taking_part([session for session in sessions if session.is_runnable])
        requests = [each.request(self._length(each.slot), self._max_width) for each in runnable]
        parts = next_batch(requests, self._max_num_tokens)
        chosen = {runnable[part.index]: part.num_candidates for part in parts}
        for session in runnable:
            session.num_missed = 0 if session in chosen else session.num_missed + 1
        return chosen

    def _taking_part(self, runnable: list[VerifierState]) -> list[VerifierState]:
        """Return the sessions that do not better wait for candidates that are on their way.

        None waits if all could.
        """
        now_ns = self._clock()
        may_wait = [session for session in runnable if _may_wait(session, now_ns)]
        if not may_wait or len(may_wait) == len(runnable):
            return runnable
        wait = {session for session in may_wait if not self._is_worth(session)}
        return [session for session in runnable if session not in wait]

    def _is_worth(self, session: VerifierState) -> bool:
        request = session.request(self._length(session.slot), self._max_width)
        expected_tokens = 1.0 if session.open_window is None else session.open_window.expected_tokens
        return self._throughput.is_worth(expected_tokens, request.num_needed + request.num_candidates)


def _may_wait(session: VerifierState, now_ns: int) -> bool:
    """Return whether candidates for a runnable session are on their way, and not late."""
    until_ns = session.derived.awaited_until_ns
    return until_ns is not None and now_ns <= until_ns
