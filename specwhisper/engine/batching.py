"""Choose which sessions take part in a target's next forward pass.

The rule is pure (:mod:`specwhisper.speculation.scheduling`). Here it is applied to sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from specwhisper.engine.verifier_state import VerifierState
from specwhisper.speculation.forward_time import BatchTime
from specwhisper.speculation.scheduling import next_batch


class Batching:
    """Follows a target's forward passes, and chooses the next one.

    Parameters
    ----------
    length : returns the tokens that a slot holds.
    max_width : most draft tokens of a session in a forward pass.
    max_num_tokens : most tokens in a forward pass.

    Attributes
    ----------
    time : of forward passes.
    """

    def __init__(
        self,
        length: Callable[[int], int],
        *,
        max_width: int,
        max_num_tokens: int,
    ) -> None:
        self.time = BatchTime()
        self._length = length
        self._max_width = max_width
        self._max_num_tokens = max_num_tokens

    def observe_forward(self, widths: Sequence[int], forward_ns: int) -> None:
        """Add a forward pass, with the tokens of each session."""
        self.time.observe(len(widths), sum(widths), forward_ns)

    def choose(self, sessions: Collection[VerifierState]) -> dict[VerifierState, int]:
        """Return the sessions of the next forward pass, with their numbers of candidates."""
        runnable = [session for session in sessions if session.is_runnable]
        requests = [each.request(self._length(each.slot), self._max_width) for each in runnable]
        parts = next_batch(requests, self._max_num_tokens)
        chosen = {runnable[part.index]: part.num_candidates for part in parts}
        for session in runnable:
            session.num_missed = 0 if session in chosen else session.num_missed + 1
        return chosen
