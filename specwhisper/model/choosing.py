"""The rows of a forward pass, and the tokens that are chosen from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

from specwhisper.model.arrays import Array, array_namespace, logsumexp, take_along_rows, top_two
from specwhisper.model.classical import keep_or_redraw, propose
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
    for row in rows:
        end = at + row.num_candidates + 1
        for i, candidate in enumerate(() if row.accepts_by_equality else row.candidates, start=at):
            kept = _kept(row, i - at, candidate, logits[i], total[i, 0])
            if kept is not None and kept != tokens[i]:
                tokens[i] = kept
                log_probs[i] = float(logits[i, kept] - total[i, 0])
        of_row = [proposals[i] for i in range(at, end) if i in proposals]
        scores.append(Scores(tokens[at:end], log_probs[at:end], margins[at:end], proposals=of_row))
        at = end
    return scores


def _kept(row: Row, index: int, candidate: int, logits: Array, total: Array) -> int | None:
    """Return the token for a candidate; ``None`` if equality decides."""
    if row.acceptance_threshold is not None:
        is_likely = exp(float(logits[candidate] - total)) >= row.acceptance_threshold
        return candidate if is_likely else None
    if row.acceptance is not Acceptance.CLASSICAL or row.sampling is None:
        return None
    position = len(row.generated) + index
    proposal = (row.proposals or {}).get(position)
    return keep_or_redraw(logits, row.sampling, position, candidate, proposal)
