"""The classical acceptance rule of speculative sampling (arXiv 2211.17192).

A candidate ``x`` drawn from ``q`` is kept with probability ``min(1, p(x) / q(x))``; otherwise the target
draws from the residual ``max(0, p - q)``. The text then follows the distribution ``p``, whatever ``q`` is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specwhisper.model.sampling import Sampling, gumbel
from specwhisper.speculation.noise import Stream, uniform
from specwhisper.types import NUM_PROPOSED, Proposal


def propose(logits: Tensor, sampling: Sampling) -> Proposal:
    """Return the distribution that a draft draws from: its likeliest tokens.

    All other ``logits`` become -inf, in place.
    """
    best = logits.topk(min(NUM_PROPOSED, len(logits)))
    probs = (best.values / sampling.temperature).softmax(dim=-1)
    logits.fill_(-torch.inf)
    logits[best.indices] = best.values
    return Proposal(tuple(best.indices.tolist()), tuple(probs.tolist()))


def keep_or_redraw(
    logits: Tensor, sampling: Sampling, position: int, candidate: int, proposal: Proposal | None
) -> int:
    """Return a candidate if it is kept, else a token from the residual.

    Parameters
    ----------
    logits : the target's, after all rules.
    proposal : the distribution of the candidate. If it is ``None`` or lacks the candidate, the candidate
        counts as certain.
    """
    p = (logits / sampling.temperature).softmax(dim=-1)
    if proposal is None or candidate not in proposal.tokens:
        proposal = Proposal((candidate,), (1.0,))
    q = proposal.probs[proposal.tokens.index(candidate)]
    if uniform(sampling.key(position, Stream.ACCEPT)) * q < float(p[candidate]):
        return candidate
    rest = p.clone()
    rest[list(proposal.tokens)] -= torch.tensor(proposal.probs, device=p.device)
    rest[candidate] = 0.0
    if float(rest.max()) <= 0:  # p equals q but for rounding
        return candidate
    noise = gumbel([sampling.key(position, Stream.RESIDUAL)], len(rest), rest.device)[0]
    return int((rest.clamp(min=0).log() + noise).argmax())
