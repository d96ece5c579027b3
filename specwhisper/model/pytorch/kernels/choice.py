"""Choose a token after each token of a pass, under the rules, on the device.

Each logit is read once: programs find the best ids of a part of the vocabulary, then one for each token
chooses among the parts. Text and timestamps are kept apart, because timestamps that together are likelier
than any text token leave only timestamps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.jit import kernel, supports, tl, triton
from specwhisper.model.pytorch.kernels.packed_inputs import PackedInputs

# Estimates for an H200; not measured.
BLOCK_IDS = 2_048  # read at once
PART_IDS = 4_096  # of the vocabulary that one program reads: 13 programs a token
BEST = 8  # numbers of a part: two ranges' best id, its logit, the second best logit, the sum's logarithm


class Rules(NamedTuple):
    """A vocabulary's decoding rules on the device.

    Attributes
    ----------
    is_forbidden : bool, states x vocabulary: what a state never allows.
    timestamp_begin : the first timestamp's id.
    first_timed_state : the states from this one on follow the timestamp rules.
    """

    is_forbidden: Tensor
    timestamp_begin: int
    first_timed_state: int


def choose_tokens(logits: Tensor, rules: Rules, inputs: PackedInputs) -> Tensor:
    """Choose greedily, as :func:`specwhisper.model.choosing.choose` does.

    Parameters
    ----------
    logits : float32, tokens x vocabulary, contiguous; not changed.

    Returns
    -------
    float32, tokens x 4: the chosen id, its natural log-probability, its distance to the second best logit,
    and the log-probability of the candidate that follows, if there is one.
    """
    if not supports(logits):
        return choose_tokens_reference(logits, rules, inputs)
    num_tokens, num_ids = logits.shape
    num_parts = triton.cdiv(num_ids, PART_IDS)
    best = torch.empty((num_tokens, num_parts, BEST), dtype=torch.float32, device=logits.device)
    output = torch.empty((num_tokens, 4), dtype=torch.float32, device=logits.device)
    given = (inputs.states, inputs.first_times, inputs.last_times)
    with torch.cuda.device_of(logits):
        best_of_part_kernel[num_tokens, num_parts](
            best,
            logits,
            rules.is_forbidden,
            *given,
            rules.timestamp_begin,
            num_ids,
            BLOCK_IDS=BLOCK_IDS,
            PART_IDS=PART_IDS,
            num_warps=8,
        )
        choose_kernel[(num_tokens,)](
            output,
            best,
            logits,
            rules.is_forbidden,
            *given,
            inputs.candidates,
            rules.timestamp_begin,
            num_ids,
            num_parts,
            BLOCK_PARTS=triton.next_power_of_2(num_parts),
            TIMED_STATE=rules.first_timed_state,
            num_warps=1,
        )
    return output


def choose_tokens_reference(logits: Tensor, rules: Rules, inputs: PackedInputs) -> Tensor:
    """Compute :func:`choose_tokens` with torch alone; no shape depends on data."""
    allowed = logits.masked_fill(rules.is_forbidden.index_select(0, inputs.states), -math.inf)
    text, times = allowed[:, : rules.timestamp_begin], allowed[:, rules.timestamp_begin :]
    time = torch.arange(times.shape[1], device=logits.device)
    is_early, is_late = time < inputs.first_times[:, None], time > inputs.last_times[:, None]
    times = times.masked_fill(is_early | is_late, -math.inf)
    is_timed = inputs.states >= rules.first_timed_state
    must_be_time = is_timed & (times.logsumexp(dim=1) > text.amax(dim=1))
    allowed = torch.cat([text.masked_fill(must_be_time[:, None], -math.inf), times], dim=1)
    best = allowed.argmax(dim=1, keepdim=True)
    first = allowed.gather(1, best)
    second = allowed.scatter(1, best, -math.inf).amax(dim=1, keepdim=True)
    total = allowed.logsumexp(dim=1, keepdim=True)
    candidate = allowed.gather(1, inputs.candidates.clamp(min=0).long()[:, None])
    return torch.cat([best.float(), first - total, first - second, candidate - total], dim=1)


@kernel
def _best_two(
    logits: tl.tensor,
    is_forbidden: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    first_allowed: tl.tensor,
    last_allowed: tl.tensor,
    BLOCK_IDS: tl.constexpr,
) -> tl.tensor:
    """Return the best id of a range, its logit, the second best logit and the sum's logarithm."""
    best = tl.full([BLOCK_IDS], float("-inf"), tl.float32)
    second = tl.full([BLOCK_IDS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_IDS], tl.float32)
    index = tl.zeros([BLOCK_IDS], tl.int32) + first
    for block in range(first, end, BLOCK_IDS):
        ids = block + tl.arange(0, BLOCK_IDS)
        is_id = ids < end
        is_allowed = is_id & (ids >= first_allowed) & (ids <= last_allowed)
        is_allowed = is_allowed & (tl.load(is_forbidden + ids, mask=is_id, other=1) == 0)
        logit = tl.load(logits + ids, mask=is_allowed, other=float("-inf"))
        is_better = logit > best
        second = tl.where(is_better, best, tl.maximum(second, logit))
        index = tl.where(is_better, ids, index)
        raised = tl.maximum(best, logit)
        base = tl.where(raised == float("-inf"), 0.0, raised)
        total = total * tl.exp(best - base) + tl.exp(logit - base)
        best = raised
    most = tl.max(best, 0)
    chosen = tl.min(tl.where(best == most, index, end), 0)  # the lowest of equal ids
    runner_up = tl.max(tl.where((best == most) & (index == chosen), second, best), 0)
    base = tl.where(most == float("-inf"), 0.0, most)
    sum_ = tl.sum(total * tl.exp(best - base), 0)
    return chosen, most, runner_up, base + tl.log(sum_)


@kernel
def _rules_after(
    token: tl.tensor,
    is_forbidden: tl.tensor,
    states: tl.tensor,
    first_times: tl.tensor,
    last_times: tl.tensor,
    timestamp_begin: tl.tensor,
    num_ids: tl.tensor,
) -> tl.tensor:
    """Return a token's state, its row of forbidden ids, and its first and last time."""
    state = tl.load(states + token)
    first_time = timestamp_begin + tl.load(first_times + token)
    last_time = timestamp_begin + tl.load(last_times + token)
    return state, is_forbidden + state * num_ids, first_time, last_time


@kernel
def best_of_part_kernel(
    best: tl.tensor,  # tokens x parts x 8
    logits: tl.tensor,  # tokens x vocabulary
    is_forbidden: tl.tensor,  # states x vocabulary
    states: tl.tensor,
    first_times: tl.tensor,
    last_times: tl.tensor,
    timestamp_begin: tl.tensor,
    num_ids: tl.tensor,
    BLOCK_IDS: tl.constexpr,
    PART_IDS: tl.constexpr,
) -> None:
    """Find the best text and the best time after a token, in a part of the ids."""
    token = tl.program_id(0)
    part = tl.program_id(1)
    _state, forbidden, first_time, last_time = _rules_after(
        token, is_forbidden, states, first_times, last_times, timestamp_begin, num_ids
    )
    ours = logits + token.to(tl.int64) * num_ids
    first = part * PART_IDS
    end = tl.minimum(first + PART_IDS, num_ids)
    end_of_text = tl.minimum(end, timestamp_begin)
    first_of_times = tl.maximum(first, timestamp_begin)
    text, text_most, text_second, text_total = _best_two(
        ours, forbidden, first, end_of_text, 0, timestamp_begin - 1, BLOCK_IDS
    )
    time, time_most, time_second, time_total = _best_two(
        ours, forbidden, first_of_times, end, first_time, last_time, BLOCK_IDS
    )
    ours = best + (token * tl.num_programs(1) + part) * 8
    tl.store(ours, text.to(tl.float32))
    tl.store(ours + 1, text_most)
    tl.store(ours + 2, text_second)
    tl.store(ours + 3, text_total)
    tl.store(ours + 4, time.to(tl.float32))
    tl.store(ours + 5, time_most)
    tl.store(ours + 6, time_second)
    tl.store(ours + 7, time_total)


@kernel
def _best_two_of_parts(best: tl.tensor, num_parts: tl.tensor, BLOCK_PARTS: tl.constexpr) -> tl.tensor:
    """Return of all parts what :func:`_best_two` returns of one."""
    part = tl.arange(0, BLOCK_PARTS)
    is_part = part < num_parts
    index = tl.load(best + part * 8, mask=is_part, other=float("inf"))
    first = tl.load(best + part * 8 + 1, mask=is_part, other=float("-inf"))
    second = tl.load(best + part * 8 + 2, mask=is_part, other=float("-inf"))
    total = tl.load(best + part * 8 + 3, mask=is_part, other=float("-inf"))
    most = tl.max(first, 0)
    chosen = tl.min(tl.where(first == most, index, float("inf")), 0)  # the lowest of equal ids
    runner_up = tl.max(tl.where((first == most) & (index == chosen), second, first), 0)
    base = tl.max(total, 0)
    base = tl.where(base == float("-inf"), 0.0, base)
    return chosen, most, runner_up, base + tl.log(tl.sum(tl.exp(total - base), 0))


@kernel
def choose_kernel(
    output: tl.tensor,  # tokens x 4
    best: tl.tensor,  # tokens x parts x 8
    logits: tl.tensor,  # tokens x vocabulary
    is_forbidden: tl.tensor,  # states x vocabulary
    states: tl.tensor,
    first_times: tl.tensor,
    last_times: tl.tensor,
    candidates: tl.tensor,
    timestamp_begin: tl.tensor,
    num_ids: tl.tensor,
    num_parts: tl.tensor,
    BLOCK_PARTS: tl.constexpr,
    TIMED_STATE: tl.constexpr,
) -> None:
    """Choose after one token, among the best of all parts."""
    token = tl.program_id(0)
    state, forbidden, first_time, last_time = _rules_after(
        token, is_forbidden, states, first_times, last_times, timestamp_begin, num_ids
    )
    ours = logits + token.to(tl.int64) * num_ids
    parts = best + token * num_parts * 8
    text, text_most, text_second, text_total = _best_two_of_parts(parts, num_parts, BLOCK_PARTS)
    time, time_most, time_second, time_total = _best_two_of_parts(parts + 4, num_parts, BLOCK_PARTS)
    must_be_time = (state >= TIMED_STATE) & (time_total > text_most)
    is_time = must_be_time | (time_most > text_most)
    chosen = tl.where(is_time, time, text)
    most = tl.where(is_time, time_most, text_most)
    both_second = tl.maximum(tl.minimum(text_most, time_most), tl.maximum(text_second, time_second))
    second = tl.where(must_be_time, time_second, both_second)
    base = tl.maximum(text_total, time_total)
    both_total = base + tl.log(tl.exp(text_total - base) + tl.exp(time_total - base))
    total = tl.where(must_be_time, time_total, both_total)

    candidate = tl.load(candidates + token)
    place = tl.maximum(candidate, 0)
    is_late = candidate >= timestamp_begin
    is_allowed = tl.load(forbidden + place) == 0
    in_time = (candidate >= first_time) & (candidate <= last_time)
    is_allowed = is_allowed & tl.where(is_late, in_time, must_be_time == 0)
    candidate_logit = tl.load(ours + place, mask=is_allowed, other=float("-inf"))

    tl.store(output + token * 4, chosen)
    tl.store(output + token * 4 + 1, most - total)
    tl.store(output + token * 4 + 2, most - second)
    tl.store(output + token * 4 + 3, candidate_logit - total)
