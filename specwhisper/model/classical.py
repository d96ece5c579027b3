"""The classical acceptance rule of speculative sampling (arXiv 2211.17192).

A candidate ``x`` drawn from ``q`` is kept with probability ``min(1, p(x) / q(x))``; otherwise the target
draws from the residual ``max(0, p - q)``. The text then follows the distribution ``p``, whatever ``q`` is.
"""

from __future__ import annotations

import numpy as np

from specwhisper.model.arrays import Array, device, log_of_positive, softmax, to_device, top_k
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


def keep_or_redraw(
    logits: Array, sampling: Sampling, position: int, candidate: int, proposal: Proposal | None
) -> int:
    """Return a candidate if it is kept, else a token from the residual.

    Parameters
    ----------
    logits : the target's, after all rules.
    proposal : the distribution of the candidate. If it is ``None`` or lacks the candidate, the candidate
        counts as certain.
    """
    probs = softmax(logits / sampling.temperature)
    if proposal is None or candidate not in proposal.tokens:
        proposal = Proposal((candidate,), (1.0,))
    q = proposal.probs[proposal.tokens.index(candidate)]
    if uniform(sampling.key(position, Stream.ACCEPT)) * q < float(probs[candidate]):
        return candidate
    proposed = np.array(proposal.probs, np.float32)
    probs[list(proposal.tokens)] -= to_device(proposed, device(probs))
    probs[candidate] = 0.0
    if float(probs.max()) <= 0:  # p equals q but for rounding
        return candidate
    noise = gumbel([sampling.key(position, Stream.RESIDUAL)], len(probs), device(probs))[0]
    return int((log_of_positive(probs) + noise).argmax())
