"""The rows of a forward pass, and the tokens that are chosen from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
from array_api_compat import array_namespace, device

from specwhisper.model.arrays import Array, logsumexp, take_along_rows, take_rows, to_device, top_two
from specwhisper.model.sampling import Sampling, add_gumbel, filter_top_k_top_p


@dataclass(frozen=True, slots=True)
class Row:
    """One session's part of a forward pass.

    Attributes
    ----------
    slot : where its keys and values are.
    tokens : appended to the slot; the last ``num_candidates`` of them are candidates.
    generated : tokens of the window before the candidates; the rules depend on them.
    timestamps : whether the timestamp rules apply, with ``max_initial_timestamp``
        (:meth:`specwhisper.model.rules.DecodingRules.allowed`).
    sampling : how tokens are drawn; ``None`` takes the likeliest.
    acceptance_threshold : a candidate of at least this probability is always kept.
    probe : index in ``tokens`` of ``<|startoftranscript|>``, whose logits show silence and language.
    """

    slot: int
    tokens: Sequence[int]
    num_candidates: int
    generated: Sequence[int]
    timestamps: bool
    max_initial_timestamp: int | None = None
    sampling: Sampling | None = None
    acceptance_threshold: float | None = None
    probe: int | None = None

    @property
    def candidates(self) -> Sequence[int]:
        return self.tokens[len(self.tokens) - self.num_candidates :]

    def with_candidates(self, num_candidates: int) -> Row:
        num_left_out = self.num_candidates - num_candidates
        if not num_left_out:
            return self
        return replace(self, tokens=self.tokens[:-num_left_out], num_candidates=num_candidates)

    def key(self, index: int) -> int:
        """Return the key of the noise after ``index`` candidates; 0 without sampling."""
        return self.sampling.key(len(self.generated) + index) if self.sampling else 0


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The probability of silence, ``None`` if unknown, and of each language."""

    no_speech_prob: float | None
    language_probs: dict[str, float]


@dataclass(frozen=True, slots=True)
class Scores:
    """The choices after each prefix of a row's candidates, one more than candidates.

    Attributes
    ----------
    log_probs : natural, after the rules and without temperature.
    margins : distances to the second best; with sampling, the logits have noise.
    probe_result : set if the row has a probe.
    """

    tokens: list[int]
    log_probs: list[float]
    margins: list[float]
    probe_result: ProbeResult | None = None


def choose(rows: Sequence[Row], logits: Array) -> list[Scores]:
    """Choose a token after each prefix.

    ``logits``: all rows' prefixes x vocabulary, after the rules; changed in place.
    """
    owners = [row for row in rows for _ in range(row.num_candidates + 1)]
    keys = [row.key(i) for row in rows for i in range(row.num_candidates + 1)]
    for i, row in enumerate(owners):
        if row.sampling is not None:
            filter_top_k_top_p(logits[i], row.sampling)
    chosen_by = add_gumbel(logits, [row.sampling for row in owners], keys)
    best, first, second = top_two(chosen_by)
    total = logsumexp(logits)
    # All results in one tensor, so that the host waits for a GPU once. Ids are exact in float32.
    xp = array_namespace(logits)
    log_probs_of_best = take_along_rows(logits, best) - total
    results = xp.concat([xp.astype(best, xp.float32), log_probs_of_best, first - second], axis=1)
    ids, log_probs, margins = (list(column) for column in zip(*results.tolist(), strict=True))
    tokens, scores, at = [int(i) for i in ids], [], 0
    _keep_candidates(rows, logits, total, tokens, log_probs)
    for row in rows:
        end = at + row.num_candidates + 1
        scores.append(Scores(tokens[at:end], log_probs[at:end], margins[at:end]))
        at = end
    return scores


def _keep_candidates(
    rows: Sequence[Row], logits: Array, total: Array, tokens: list[int], log_probs: list[float]
) -> None:
    """Replace choices by candidates whose probability suffices; ``tokens`` and ``log_probs`` in place."""
    judged, first = [], 0  # the index of a prefix, the candidate after it, and the threshold
    for row in rows:
        if row.acceptance_threshold is not None:
            judged += [(first + i, token, row.acceptance_threshold) for i, token in enumerate(row.candidates)]
        first += row.num_candidates + 1
    if not judged:
        return
    place = device(logits)
    at = to_device(np.array([index for index, *_ in judged], np.int64), place)
    ids = to_device(np.array([[candidate] for _, candidate, _ in judged], np.int64), place)
    of_candidates = take_along_rows(take_rows(logits, at), ids) - take_rows(total, at)
    for (index, candidate, threshold), (log_prob,) in zip(judged, of_candidates.tolist(), strict=True):
        if exp(log_prob) >= threshold and candidate != tokens[index]:
            tokens[index], log_probs[index] = candidate, log_prob
