"""How often candidates of each source are right, and how many are worth a place in a forward pass."""

from __future__ import annotations

from enum import Enum
from math import ceil, log

MAX_HINTED = 64  # candidates of a hint in a forward pass
MIN_CHANCE = 0.1  # that the last candidate is right: it costs a few hundredths of a forward pass
MIN_RATE = 0.1  # below it, a source is tried again only after its record has faded
MEMORY = 0.99  # of a judgement's weight, with every committed token
PRIOR_WEIGHT = 4.0  # judgements that a source begins with


class Source(Enum):
    """The source of a candidate."""

    OWN = "own"  # the target's earlier decoding of the same audio
    GIVEN = "given"  # text from outside
    DRAFT = "draft"  # drafted after all that is committed
    SENT = "sent"  # sent by the draft before a correction


PRIORS = {Source.OWN: 0.95, Source.GIVEN: 0.9, Source.DRAFT: 0.8, Source.SENT: 0.7}


class Reliability:
    """The record of a session's sources: decaying counts."""

    def __init__(self) -> None:
        self._num_right = dict.fromkeys(Source, 0.0)
        self._num_judged = dict.fromkeys(Source, 0.0)

    def rate(self, source: Source) -> float:
        """Return how often a candidate was right whose predecessors were."""
        num_right = self._num_right[source] + PRIORS[source] * PRIOR_WEIGHT
        return num_right / (self._num_judged[source] + PRIOR_WEIGHT)

    def reach(self, source: Source) -> int:
        """Return how many candidates of a hint are worth verifying."""
        rate = self.rate(source)
        if rate < MIN_RATE:
            return 0
        return min(MAX_HINTED, max(1, ceil(log(MIN_CHANCE) / log(rate)))) if rate < 1 else MAX_HINTED

    def judge(self, source: Source, *, is_right: bool) -> None:
        """Add a verified candidate."""
        self._num_judged[source] += 1
        self._num_right[source] += is_right

    def fade(self, num_committed: int) -> None:
        """Let older judgements count less after committed tokens."""
        for counts in (self._num_right, self._num_judged):
            for source in counts:
                counts[source] *= MEMORY**num_committed
