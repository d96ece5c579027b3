"""What a session feeds to a model in one pass, and the tokens that are chosen there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

import torch
from torch import Tensor

from specwhisper.model.classical import keep_or_redraw, propose
from specwhisper.model.sampling import Sampling, noisy, restrict
from specwhisper.options import Acceptance
from specwhisper.speculation.noise import Stream
from specwhisper.types import Proposal


@dataclass(frozen=True, slots=True)
class Row:
    """One session's part of a forward pass.

    Attributes
    ----------
    slot : where its keys and values lie.
    tokens : what to append to the slot; the last ``num_candidates`` of them are candidates.
    generated : tokens of the window before the candidates; the rules depend on them.
    timestamps : whether the timestamp rules apply, ``max_initial_timestamp`` among them
        (:meth:`specwhisper.model.rules.DecodingRules.allowed`).
    sampling : how tokens are drawn; ``None`` takes the likeliest.
    acceptance : which candidates are kept; a draft has none and, where it is classical, tells in
        ``Scores.proposals`` what it drew from.
    acceptance_threshold : probability from which on a candidate is kept in any case.
    proposals : what candidates were drawn from, by position; only where acceptance is classical.
    probe : index in ``tokens`` of ``<|startoftranscript|>``, where silence and language show.
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
        """The last of the tokens."""
        return self.tokens[len(self.tokens) - self.num_candidates :]

    @property
    def keeps_what_is_equal(self) -> bool:
        """Whether a candidate is kept where it is the choice and nowhere else."""
        is_classical = self.acceptance is Acceptance.CLASSICAL and self.sampling is not None
        return self.acceptance_threshold is None and not is_classical

    @property
    def proposes(self) -> bool:
        """Whether this is a draft's row under the classical rule."""
        return (
            self.sampling is not None and self.acceptance is Acceptance.CLASSICAL and self.proposals is None
        )

    def key(self, index: int) -> int:
        """Give the key of the noise behind the first ``index`` candidates; 0 without sampling."""
        stream = Stream.DRAFT if self.proposes else Stream.CHOICE
        return self.sampling.key(len(self.generated) + index, stream) if self.sampling else 0


@dataclass(frozen=True, slots=True)
class Heard:
    """What a probe tells: the probability that nothing is spoken, and of each language."""

    no_speech_prob: float | None
    language_probs: dict[str, float]


@dataclass(frozen=True, slots=True)
class Scores:
    """The model's choice behind each prefix of a row's candidates: ``num_candidates + 1`` of each.

    ``log_probs`` are natural, after the rules and without temperature; ``margins`` are distances to the
    second best, of logits or, when sampling, of what it chooses by. ``proposals`` are a draft's, and empty
    unless it has to tell them.
    """

    tokens: list[int]
    log_probs: list[float]
    margins: list[float]
    heard: Heard | None = None
    proposals: list[Proposal] = field(default_factory=list)


def choose(rows: Sequence[Row], logits: Tensor) -> list[Scores]:
    """Choose behind each prefix; ``logits`` (as many rows as prefixes x vocabulary) are after the rules."""
    owners = [row for row in rows for _ in range(row.num_candidates + 1)]
    keys = [row.key(i) for row in rows for i in range(row.num_candidates + 1)]
    proposals: dict[int, Proposal] = {}
    for i, row in enumerate(owners):
        if row.sampling is not None:
            logits[i] = restrict(logits[i], row.sampling)
            if row.proposes:
                proposals[i] = propose(logits[i], row.sampling)
    chosen_by = noisy(logits, [row.sampling for row in owners], keys)
    best = _argmax(chosen_by)
    first = chosen_by.gather(1, best)
    second = chosen_by.scatter(1, best, -torch.inf).amax(dim=-1, keepdim=True)
    total = logits.logsumexp(dim=-1, keepdim=True)
    # All that is told, in one tensor: a GPU is waited for once. Ids are exact in float32.
    told = torch.cat([best.float(), logits.gather(1, best) - total, first - second], dim=1)
    ids, log_probs, margins = (list(column) for column in zip(*told.tolist(), strict=True))
    tokens, scores, at = [int(i) for i in ids], [], 0
    for row in rows:
        end = at + row.num_candidates + 1
        for i, candidate in enumerate(() if row.keeps_what_is_equal else row.candidates, start=at):
            kept = _kept(row, i - at, candidate, logits[i], total[i])
            if kept is not None and kept != tokens[i]:
                tokens[i] = kept
                log_probs[i] = float(logits[i, kept] - total[i])
        said = [proposals[i] for i in range(at, end) if i in proposals]
        scores.append(Scores(tokens[at:end], log_probs[at:end], margins[at:end], proposals=said))
        at = end
    return scores


def _argmax(rows: Tensor) -> Tensor:
    """Give the index of each row's largest, the lowest of equals, as rows x 1."""
    if rows.device.type == "cpu":  # torch's own takes ten times as long there
        return torch.from_numpy(rows.numpy().argmax(axis=1, keepdims=True))
    return rows.argmax(dim=1, keepdim=True)


def _kept(row: Row, index: int, candidate: int, logits: Tensor, total: Tensor) -> int | None:
    """Give the token that a candidate leads to where equality does not decide; ``None`` where it does."""
    if row.acceptance_threshold is not None:
        is_likely = exp(float(logits[candidate] - total)) >= row.acceptance_threshold
        return candidate if is_likely else None
    if row.acceptance is not Acceptance.CLASSICAL or row.sampling is None:
        return None
    position = len(row.generated) + index
    proposal = (row.proposals or {}).get(position)
    return keep_or_redraw(logits, row.sampling, position, candidate, proposal)
