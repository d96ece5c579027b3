"""A draft's own text as prefixes to learn from.

A draft that only ever saw right prefixes goes astray after its first own mistake. So it writes some windows
alone, and the target continues each prefix that this makes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import WhisperForConditionalGeneration

from experiments.demo_pair.data.tokenizer import Vocabulary
from experiments.demo_pair.decode import greedy

TOKENS_PER_SECOND = 7.5
MOST_TOKENS = 220


@dataclass(frozen=True)
class Prefixes:
    """Decoder inputs, windows x tokens, and at which positions the next token is to be learnt."""

    tokens: torch.Tensor
    use: torch.Tensor


def most_tokens(encoded: torch.Tensor) -> int:
    """Return the length at which a transcript is cut, lest one that repeats itself continues."""
    return min(MOST_TOKENS, 10 + int(TOKENS_PER_SECOND * encoded.shape[1] / 50))


def stack(rows: list[list[int]], v: Vocabulary) -> Prefixes:
    """Stack transcripts of different lengths after the start tokens."""
    head = [v.start, v.english, v.transcribe]
    length = max(len(row) for row in rows) + len(head) - 1
    tokens = torch.full((len(rows), length), v.end)
    use = torch.zeros((len(rows), length), dtype=torch.bool)
    for i, row in enumerate(rows):
        ids = [*head, *row[:-1]]
        tokens[i, : len(ids)] = torch.tensor(ids)
        use[i, len(head) - 1 : len(ids)] = True
    return Prefixes(tokens, use)


def own_prefixes(
    draft: WhisperForConditionalGeneration, encoded: torch.Tensor, v: Vocabulary, most: int | None = None
) -> Prefixes:
    """Let a draft write encoded windows greedily, under Whisper's timestamp rules."""
    # Single steps gain nothing from bfloat16, and every one of them would convert the weights again.
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        rows = greedy(draft, encoded.detach().float(), v, most_tokens(encoded) if most is None else most)
    return stack(rows, v)
