"""The rows of a forward pass, and the tokens that are chosen from its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import NamedTuple

import numpy as np

from specwhisper.model.arrays import (
    Array,
    array_namespace,
    device,
    logsumexp,
    take_along_rows,
    take_rows,
    to_device,
    top_two,
)
from specwhisper.model.classical import is_kept, propose, redraw, with_default
from specwhisper.model.sampling import Sampling, add_gumbel, filter_top_k_top_p
from specwhisper.options import Acceptance
from specwhisper.speculation.noise import Stream
from specwhisper.types import Proposal


@dataclass(frozen=True, slots=True)
class Row:
    """One session's part of a forward pass.

    Attributes
    ----------
    slot : of its keys and values.
    tokens : appended to the slot; the last ``num_candidates`` of them are candidates.
    generated : tokens of the window before the candidates; the rules depend on them.
    timestamps : whether the timestamp rules apply, with ``max_initial_timestamp``
        (:meth:`specwhisper.model.rules.DecodingRules.allowed`).
    sampling : how tokens are drawn; ``None`` takes the likeliest.
    acceptance : which candidates are kept. A draft keeps those that it would draft again; if acceptance is
        classical, its proposals are in ``Scores.proposals``.
    acceptance_threshold : a candidate of at least this probability is always kept.
    proposals : the distributions that candidates were drawn from, by position, if acceptance is classical.
    probe : index in ``tokens`` of ``<|startoftranscript|>``, whose logits show silence and language.
    """

    slot: int
    tokens: Sequence[int]
    num_candidates: int
    generated: Sequence[int]
    timestamps: bool
    max_initial_timestamp: int | None = None
    sampling: Sampling | None = None
    acceptance: Acceptance = Acceptance.EXACT
    acceptance_threshold: float | None = None
    proposals: dict[int, Proposal] | None = None
    probe: int | None = None

    @property
    def candidates(self) -> Sequence[int]:
        """The last of the tokens, which are verified."""
        return self.tokens[len(self.tokens) - self.num_candidates :]

    @property
    def accepts_by_equality(self) -> bool:
        """Whether a candidate is kept if it equals the choice, and only then."""
        is_classical = self.acceptance is Acceptance.CLASSICAL and self.sampling is not None
        return self.acceptance_threshold is None and (not is_classical or self.has_proposals)

    @property
    def has_proposals(self) -> bool:
        """Whether this is a draft's row under the classical rule."""
        return (
            self.sampling is not None and self.acceptance is Acceptance.CLASSICAL and self.proposals is None
        )

    def key(self, index: int) -> int:
        """Return the key of the noise after ``index`` candidates; 0 without sampling."""
        stream = Stream.DRAFT if self.has_proposals else Stream.CHOICE
        return self.sampling.key(len(self.generated) + index, stream) if self.sampling else 0


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
    margins : distances to the second best: of logits or, with sampling, of logits with noise.
    probe_result : of a row with a probe.
    proposals : of a draft's row under the classical rule, else empty.
    """

    tokens: list[int]
    log_probs: list[float]
    margins: list[float]
    probe_result: ProbeResult | None = None
    proposals: list[Proposal] = field(default_factory=list)


def choose(rows: Sequence[Row], logits: Array) -> list[Scores]:
    """Choose a token after each prefix.

    Parameters
    ----------
    logits : all rows' prefixes x vocabulary, after the rules; changed in place.
    """
    owners = [row for row in rows for _ in range(row.num_candidates + 1)]
    keys = [row.key(i) for row in rows for i in range(row.num_candidates + 1)]
    proposals: dict[int, Proposal] = {}
    for i, row in enumerate(owners):
        if row.sampling is not None:
            filter_top_k_top_p(logits[i], row.sampling)
            if row.has_proposals:
                proposals[i] = propose(logits[i], row.sampling)
    chosen_by = add_gumbel(logits, [row.sampling for row in owners], keys)
    best, first, second = top_two(chosen_by)
    total = logsumexp(logits)
    # All results in one tensor, so that the host waits for a GPU once. Ids are exact in float32.
    xp = array_namespace(logits)
    log_probs_of_best = take_along_rows(logits, best) - total
    results = xp.concat([xp.astype(best, xp.float32), log_probs_of_best, first - second], axis=1)
    ids, log_probs, margins = (list(column) for column in zip(*results.tolist(), strict=True))
    tokens, scores, at = [int(i) for i in ids], [], 0
    judged = list(_judged(rows))
    if judged:
        _keep_candidates(judged, logits, total, tokens, log_probs)
    for row in rows:
        end = at + row.num_candidates + 1
        of_row = [proposals[i] for i in range(at, end) if i in proposals]
        scores.append(Scores(tokens[at:end], log_probs[at:end], margins[at:end], proposals=of_row))
        at = end
    return scores


class _Judged(NamedTuple):
    """A candidate that may be kept although it is not the choice."""

    at: int  # of its prefix among those of all rows
    row: Row
    position: int  # in the window
    candidate: int


def _judged(rows: Sequence[Row]) -> Iterator[_Judged]:
    at = 0
    for row in rows:
        if not row.accepts_by_equality:
            for i, candidate in enumerate(row.candidates):
                yield _Judged(at + i, row, len(row.generated) + i, candidate)
        at += row.num_candidates + 1


def _keep_candidates(
    judged: Sequence[_Judged], logits: Array, total: Array, tokens: list[int], log_probs: list[float]
) -> None:
    """Replace choices by candidates that are kept, or are redrawn; ``tokens`` and ``log_probs`` in place.

    Choices after a row's first redrawn token are not used, so they stay. A GPU is waited for once,
    and once more if tokens are redrawn.
    """
    xp, place = array_namespace(logits), device(logits)
    at = to_device(np.array([one.at for one in judged], np.int64), place)
    rows, totals = take_rows(logits, at), take_rows(total, at)
    ids = to_device(np.array([[one.candidate] for one in judged], np.int64), place)
    temperatures = [one.row.sampling.temperature if one.row.sampling else 1.0 for one in judged]
    scaled = rows / to_device(np.array(temperatures, np.float32)[:, None], place)
    of_candidates = [take_along_rows(rows, ids) - totals, take_along_rows(scaled, ids) - logsumexp(scaled)]
    redrawn: list[_Judged] = []
    for one, (log_prob, sampled_log_prob) in zip(
        judged, xp.concat(of_candidates, axis=1).tolist(), strict=True
    ):
        row = one.row
        if redrawn and redrawn[-1].row is row:
            continue
        if row.acceptance_threshold is not None:
            keeps = exp(log_prob) >= row.acceptance_threshold
        elif row.sampling is None:
            continue
        else:
            proposal = with_default((row.proposals or {}).get(one.position), one.candidate)
            keeps = is_kept(row.sampling, one.position, one.candidate, proposal, exp(sampled_log_prob))
            if not keeps:
                redrawn.append(one)
        if keeps and one.candidate != tokens[one.at]:
            tokens[one.at], log_probs[one.at] = one.candidate, log_prob
    if redrawn:
        values = []
        for one in redrawn:
            token = _redraw(one, logits[one.at])
            log_prob = take_along_rows(logits[one.at][None], token.reshape(1, 1))[0, 0] - total[one.at, 0]
            values.append(xp.stack([xp.astype(token, xp.float32), log_prob]))
        for one, (token, log_prob) in zip(redrawn, xp.stack(values).tolist(), strict=True):
            tokens[one.at], log_probs[one.at] = int(token), log_prob


def _redraw(one: _Judged, logits: Array) -> Array:
    assert one.row.sampling is not None
    proposal = with_default((one.row.proposals or {}).get(one.position), one.candidate)
    return redraw(logits, one.row.sampling, one.position, one.candidate, proposal)
