"""Score rows on a GPU: the device chooses, and the host waits once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from math import exp

from torch import Tensor

from specwhisper.model.choosing import Row, Scores, choose
from specwhisper.model.pytorch.decoder import CachedDecoder
from specwhisper.model.pytorch.kernels.choice import Rules
from specwhisper.model.pytorch.kernels.packed_inputs import Following
from specwhisper.model.pytorch.kernels.packed_runner import StepResult
from specwhisper.model.pytorch.transfer import to_device, to_host
from specwhisper.model.rules import DecodingRules, TimestampState
from specwhisper.model.scoring import Probing, allowed_after

Copied = Callable[[], Tensor]  # waits for a copy to the host


class PackedScorer:
    """A :class:`specwhisper.model.scoring.Scorer` of a decoder with static shapes.

    Rows with sampling are chosen from their logits outside the graph: a few rows, of windows whose first
    decoding failed.
    """

    def __init__(self, decoder: CachedDecoder, rules: DecodingRules, probing: Probing) -> None:
        self._decoder = decoder
        self._rules = rules
        self._probing = probing
        decoder.set_rules(
            Rules(rules.is_forbidden, rules.timestamp_begin, first_timed_state=TimestampState.START)
        )

    def __call__(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate."""
        allowed = [allowed_after(row, self._rules) for row in rows]
        following = [Following(of_row, row.num_candidates) for of_row, row in zip(allowed, rows, strict=True)]
        ends = list(accumulate((len(row.tokens) for row in rows), initial=0))[1:]
        copies: list[tuple[range, Copied]] = []
        probes: list[tuple[list[int], Copied]] = []
        drawn: dict[int, Scores] = {}
        passes = self._decoder.choose([row.slot for row in rows], [row.tokens for row in rows], following)
        for part, result in passes:
            before = ends[part.start - 1] if part.start else 0
            copies.append((part, to_host(result.choices)))
            if probed := [i for i in part if rows[i].probe is not None]:
                at = [ends[i] - len(rows[i].tokens) + (rows[i].probe or 0) - before for i in probed]
                probes.append((probed, to_host(self._probing.probs(_take(result, at)))))
            if sampled := [i for i in part if rows[i].sampling is not None]:
                at = [ends[i] - before - n for i in sampled for n in range(rows[i].num_candidates + 1, 0, -1)]
                logits = _take(result, at)
                self._rules.apply(logits, [state for i in sampled for state in allowed[i]])
                drawn |= dict(zip(sampled, choose([rows[i] for i in sampled], logits), strict=True))
        found: list[Scores] = []
        for part, wait in copies:
            before, choices = ends[part.start - 1] if part.start else 0, wait().tolist()
            for i in part:
                end = ends[i] - before
                chosen = choices[end - 1 - rows[i].num_candidates : end]
                found.append(drawn[i] if i in drawn else _scores(rows[i], chosen))
        for probed, wait in probes:
            for i, values in zip(probed, wait().tolist(), strict=True):
                found[i] = replace(found[i], probe_result=self._probing.result(values))
        return found


def _take(result: StepResult, tokens: Sequence[int]) -> Tensor:
    """Return a copy of the logits after some tokens."""
    return result.logits.index_select(0, to_device(list(tokens), result.logits.device))


def _scores(row: Row, choices: Sequence[Sequence[float]]) -> Scores:
    """Return a row's scores by the device's choices; see :func:`choose_tokens` for their columns."""
    ids, log_probs, margins, of_candidates = map(list, zip(*choices, strict=True))
    tokens = list(map(int, ids))  # exact in float32
    if row.acceptance_threshold is not None:
        for i, candidate in enumerate(row.candidates):
            if candidate != tokens[i] and exp(of_candidates[i]) >= row.acceptance_threshold:
                tokens[i], log_probs[i] = candidate, of_candidates[i]
    return Scores(tokens, log_probs, margins)
