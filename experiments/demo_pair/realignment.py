"""Count how often a draft is right, and whether its own text still holds after a correction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile

MOST_SKIPPED = 3  # tokens, of the draft's text and of the target's
LEAST_RUN = 2  # one equal token may be chance


def run_length(own: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(own, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def realigned_run(own: Sequence[int], right: Sequence[int]) -> int | None:
    """Return how many tokens hold after a correction, None if the draft does not realign.

    ``own`` is what the draft wrote, its wrong token first, and ``right`` the target's text after the
    corrected token. Up to three tokens of each may be skipped; the fewest are.
    """
    skips = product(range(MOST_SKIPPED + 1), repeat=2)
    for skipped_own, skipped_right in sorted(skips, key=sum):
        rest = right[skipped_right:]
        run = run_length(own[skipped_own:], rest)
        if rest and run >= min(LEAST_RUN, len(rest)):
            return run
    return None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a draft agrees with the target's tokens.

    Attributes
    ----------
    num_tokens, num_accepted : the target's tokens, and those that the draft chooses after its prefix.
    num_corrections : wrong tokens of the draft that are followed by further tokens of the target.
    runs : tokens that hold after each correction after which the draft realigns.
    """

    num_tokens: int
    num_accepted: int
    num_corrections: int
    runs: tuple[int, ...]

    @property
    def acceptance(self) -> float:
        """Share of tokens that are accepted given the target's prefix (alpha)."""
        return self.num_accepted / max(1, self.num_tokens)

    @property
    def realigns(self) -> float:
        """Share of corrections after which the draft's own continuation holds again (beta)."""
        return len(self.runs) / max(1, self.num_corrections)

    @property
    def mean_run(self) -> float:
        return sum(self.runs) / max(1, len(self.runs))


def agreement(texts: Iterable[tuple[Sequence[int], Mapping[int, Sequence[int]]]]) -> Agreement:
    """Count over windows.

    Each is the target's tokens, and the draft's continuation at each position where it chooses another
    token than the target's, that token first.
    """
    num_tokens = num_accepted = num_corrections = 0
    runs: list[int] = []
    for tokens, divergences in texts:
        num_tokens += len(tokens)
        num_accepted += len(tokens) - len(divergences)
        for position, own in divergences.items():
            if right := tokens[position + 1 :]:
                num_corrections += 1
                run = realigned_run(own, right)
                runs += [] if run is None else [run]
    return Agreement(num_tokens, num_accepted, num_corrections, tuple(runs))
