"""Drafts whose errors follow chosen rates, instead of those of a recorded draft.

Published pairs can be described by these rates: how often a draft is right after the target's own
text, how often its own continuation holds after a correction, and for how long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from experiments.common.replay.trace import Decoding


@dataclass(frozen=True, slots=True)
class ErrorProcess:
    """The errors of a draft.

    Attributes
    ----------
    acceptance : probability that a token is right after the target's text.
    realigns : probability that what was drafted after a wrong token is the target's text again.
    run_length : mean tokens for which it then is; 0 for as long as tokens are right after the target's text.
    """

    acceptance: float
    realigns: float = 0.0
    run_length: float = 0.0

    def __str__(self) -> str:
        run = f" for {self.run_length:g} tokens" if self.run_length else ""
        return f"alpha {self.acceptance:g}, beta {self.realigns:g}{run}"

    def applied(self, decodings: Sequence[Decoding], seed: int) -> tuple[Decoding, ...]:
        """Return the decodings with errors of this kind; wrong tokens are other ones of the texts."""
        random = Random(seed)
        tokens = sorted({token for decoding in decodings for token in decoding.tokens})
        return tuple(self._applied(decoding, tokens, random) for decoding in decodings)

    def _applied(self, decoding: Decoding, known: Sequence[int], random: Random) -> Decoding:
        tokens = decoding.tokens
        divergences: dict[int, tuple[int, ...]] = {}
        is_wrong = [random.random() > self.acceptance for _ in tokens]
        for position in reversed(range(len(tokens))):
            if not is_wrong[position]:
                continue
            wrong = _other(tokens[position], known, random)
            length = self._run_length(random) if random.random() < self.realigns else 0
            continuation = [wrong]
            for later in range(position + 1, len(tokens)):
                if later > position + length:
                    continuation.append(_other(tokens[later], known, random))
                elif is_wrong[later]:  # its own next error, and what follows that
                    continuation += divergences[later]
                    break
                else:
                    continuation.append(tokens[later])
            divergences[position] = tuple(continuation)
        return replace(decoding, divergences=divergences, draft_log_probs=(), continuation_log_probs={})

    def _run_length(self, random: Random) -> int:
        if not self.run_length:
            return 10**6
        length = 1
        while random.random() > 1 / self.run_length:
            length += 1
        return length


def _other(token: int, known: Sequence[int], random: Random) -> int:
    """Return another token."""
    while (other := random.choice(known)) == token:
        pass
    return other
