"""The classical acceptance rule of speculative sampling (arXiv 2211.17192).

A candidate ``x`` drawn from ``q`` is kept with probability ``min(1, p(x) / q(x))``; otherwise the target
draws from the residual ``max(0, p - q)``. The text then follows the distribution ``p``, whatever ``q`` is.
"""

from __future__ import annotations

import numpy as np

from specwhisper.model.arrays import (
    Array,
    array_namespace,
    device,
    log_of_positive,
    softmax,
    to_device,
    top_k,
)
from specwhisper.model.sampling import Sampling, gumbel
from specwhisper.speculation.noise import Stream, uniform
from specwhisper.types import NUM_PROPOSED, Proposal


def propose(logits: Array, sampling: Sampling) -> Proposal:
    """Return the distribution that a draft draws from: its likeliest tokens.

    All other ``logits`` become -inf, in place.
    """
    values, tokens = top_k(logits, min(NUM_PROPOSED, len(logits)))
    probs = softmax(values / sampling.temperature)
    logits[:] = -np.inf
    logits[tokens] = values
    return Proposal(tuple(tokens.tolist()), tuple(probs.tolist()))


def with_default(proposal: Proposal | None, candidate: int) -> Proposal:
    """Return a candidate's distribution; without one the candidate is certain."""
    if proposal is None or candidate not in proposal.tokens:
        return Proposal((candidate,), (1.0,))
    return proposal


def is_kept(sampling: Sampling, position: int, candidate: int, proposal: Proposal, prob: float) -> bool:
    """Return whether a candidate is kept.

    Parameters
    ----------
    proposal : the distribution of the candidate.
    prob : the target's probability of it, after all rules.
    """
    q = proposal.probs[proposal.tokens.index(candidate)]
    return uniform(sampling.key(position, Stream.ACCEPT)) * q < prob


def redraw(logits: Array, sampling: Sampling, position: int, candidate: int, proposal: Proposal) -> Array:
    """Return a token from the residual, in place of a rejected candidate.

    Parameters
    ----------
    logits : the target's, after all rules.
    """
    probs = softmax(logits / sampling.temperature)
    xp, place = array_namespace(probs), device(probs)
    proposed = to_device(np.array(proposal.tokens, np.int64), place)
    probs[proposed] -= to_device(np.array(proposal.probs, np.float32), place)
    probs[candidate] = 0.0
    noise = gumbel([sampling.key(position, Stream.RESIDUAL)], len(probs), place)[0]
    drawn = (log_of_positive(probs) + noise).argmax()
    # Without a residual p equals q but for rounding, so the candidate stays.
    return xp.where(probs.max() <= 0, xp.full_like(drawn, candidate), drawn)
