"""How far a text is good as a hint: the target's forward passes, counted on its known tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specwhisper.speculation.hints.given import ScriptHint
from specwhisper.speculation.hints.hint import HintTokens
from specwhisper.speculation.ledger import Ledger, SharedHints

REALIGNED_WITHIN = 3  # tokens after a correction


@dataclass(slots=True)
class Passes:
    """Forward passes with a hint, over any number of windows.

    Attributes
    ----------
    num_candidates : tokens of the hint that were verified; ``num_accepted`` of them were right.
    num_wrong : passes that ended at a wrong candidate.
    realigned : of each wrong candidate, whether one of the three tokens after it was an accepted candidate.
    """

    num_tokens: int = 0
    num_passes: int = 0
    num_candidates: int = 0
    num_accepted: int = 0
    num_wrong: int = 0
    realigned: list[bool] = field(default_factory=list)

    @property
    def alpha(self) -> float:
        """How often a candidate was right after the target's own prefix."""
        return self.num_accepted / max(1, self.num_accepted + self.num_wrong)

    @property
    def beta(self) -> float:
        """How often the hint continued the text within three tokens of a correction."""
        return float(np.mean(self.realigned)) if self.realigned else 0.0

    @property
    def passes_per_token(self) -> float:
        """Forward passes per token; 1 without a hint."""
        return self.num_passes / max(1, self.num_tokens)

    def relative_time(self, candidate_cost: float) -> float:
        """Return the time over that without a hint, encoder apart.

        Parameters
        ----------
        candidate_cost : time of a candidate in a forward pass, over that of a pass with none.
        """
        return (self.num_passes + candidate_cost * self.num_candidates) / max(1, self.num_tokens)


def count_passes(
    passes: Passes,
    tokens: Sequence[int],
    hint: str,
    tokenize: Callable[[str], Sequence[int]],
    texts: HintTokens,
) -> None:
    """Count the forward passes in which the target, with a hint, writes these tokens of a window."""
    script = ScriptHint(hint, tokenize, texts.word_of)
    script.open_window(0)
    ledger = Ledger(shared=SharedHints(texts, script))
    is_accepted: list[bool] = []
    corrections: list[int] = []
    while len(ledger.committed) < len(tokens):
        rest = tuple(tokens[len(ledger.committed) :])
        candidates = ledger.candidates()
        num_right = 0
        # One token of each pass is the target's own.
        while num_right < min(len(candidates), len(rest) - 1) and (
            candidates[num_right].token == rest[num_right]
        ):
            num_right += 1
        if num_right < len(candidates):
            corrections.append(len(ledger.committed) + num_right)
        is_accepted += [True] * num_right + [False]
        ledger.append(rest[: num_right + 1], candidates)
        passes.num_passes += 1
        passes.num_candidates += len(candidates)
        passes.num_accepted += num_right
    passes.num_tokens += len(tokens)
    passes.num_wrong += len(corrections)
    passes.realigned += [
        any(is_accepted[position + 1 : position + 1 + REALIGNED_WITHIN])
        for position in corrections
        if position + 1 < len(tokens)
    ]


def corrupted(tokens: Sequence[int], rate: float, rng: np.random.Generator) -> list[int]:
    """Replace, leave out or add a share of tokens, as often each; the others are of the same text."""
    result: list[int] = []
    for token in tokens:
        if rng.random() >= rate:
            result.append(token)
            continue
        other = tokens[int(rng.integers(len(tokens)))]
        match rng.integers(3):
            case 0:
                result.append(other)
            case 1:
                result += [token, other]
    return result
