"""Attention over slots on a CUDA GPU: keys and values are read in place.

A forward pass has few queries and many keys: one program for each row and head would leave most of the GPU
idle. The positions are therefore split over programs, each of which attends to its split alone, and a second,
small kernel combines the results (flash-decoding). Launches depend on shapes alone and nothing waits for the
device: a CUDA graph captures :func:`slot_attention` and :func:`write_slots`, and slots, starts and lengths
may differ at every replay.

With many rows, most of the memory traffic is cross-attention's keys and values; :func:`quantise_cache` halves
it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

try:  # part of torch's CUDA builds on Linux
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# Estimates for an H200, from the registers and shared memory of a program; not measured.
BLOCK_BYTES = 128  # of each channel in one read of a program: 64 positions of 16 bits, 128 of 8
PROGRAMS_PER_PROCESSOR = 4  # that a multiprocessor runs at once
MIN_SPLIT = 128  # positions; with fewer, writing and combining the results takes longer than reading
# The length of a slot is known on the device only. Most hold a few blocks: a second kernel gains nothing.
MIN_CAUSAL_SPLIT = 512


def supports(cache: Tensor) -> bool:
    """Return whether the kernels support a cache; otherwise use the references."""
    if triton is None or cache.device.type != "cuda":
        return False
    needed = (8, 9) if cache.dtype == torch.float8_e4m3fn else (8, 0)
    head_size = cache.shape[-1]
    is_power_of_two = head_size & (head_size - 1) == 0
    return torch.cuda.get_device_capability(cache.device) >= needed and is_power_of_two and head_size >= 16


def slot_attention(
    query: Tensor,
    cache: Tensor,
    slots: Tensor,
    starts: Tensor | None = None,
    *,
    scales: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor:
    """Attend from each row's queries to the keys and values in its slot.

    Parameters
    ----------
    query : rows x width x heads x head_size; ``head_size`` is a power of two from 16 on.
    cache : 2 (keys, values) x slots x heads x positions x head_size, of the query's type or quantised. Query
        and cache may have any strides as long as the last dimension is contiguous.
    slots : integers, one per row; rows may share a slot.
    starts : integers, one per row: the tokens in its slot before this batch, whose own are written already.
        Query w sees the positions up to and including ``starts + w``. ``None``: queries see every position.
    scales : of a quantised cache, as :func:`quantise_cache` returns them, positions contiguous.
    num_splits : programs that share the positions of one row and head; ``None``: enough to fill the GPU.

    Returns
    -------
    rows x width x (heads x head_size), of the query's type.
    """
    rows, width, heads, head_size = query.shape
    num_positions = cache.shape[3]
    block_positions = BLOCK_BYTES // cache.element_size()
    if num_splits is None:
        num_splits = PROGRAMS_PER_PROCESSOR * _num_processors(query.device) // (rows * heads)
        min_split = MIN_SPLIT if starts is None else MIN_CAUSAL_SPLIT
        num_splits = max(1, min(num_splits, num_positions // min_split))
    split_size = math.ceil(num_positions / block_positions / num_splits) * block_positions
    num_splits = math.ceil(num_positions / split_size)  # splits are whole blocks, so fewer may suffice

    is_whole = num_splits == 1  # nothing to combine
    block_queries = 16 if width <= 16 else 32  # the fewest that tensor cores multiply
    partial_dtype = query.dtype if is_whole else torch.float32
    shape = (rows, width, heads, num_splits)
    partials = torch.empty((*shape, head_size), dtype=partial_dtype, device=query.device)
    log_weights = torch.empty(shape, dtype=torch.float32, device=query.device)
    with torch.cuda.device_of(query):  # Triton launches on the current device
        _attend[num_splits, heads, rows * math.ceil(width / block_queries)](
            partials,
            log_weights,
            query,
            cache,
            scales,
            slots,
            starts,
            *query.stride()[:3],
            *cache.stride()[:4],
            *((0, 0, 0) if scales is None else scales.stride()[:3]),
            width,
            num_positions,
            split_size,
            head_size**-0.5 * math.log2(math.e),
            HEAD_SIZE=head_size,
            BLOCK_QUERIES=block_queries,
            BLOCK_POSITIONS=block_positions,
            num_warps=4,
            num_stages=3,
        )
        if is_whole:
            return partials.flatten(2)
        output = torch.empty((rows, width, heads * head_size), dtype=query.dtype, device=query.device)
        _combine[(rows * width * heads,)](
            output,
            partials,
            log_weights,
            num_splits,
            HEAD_SIZE=head_size,
            BLOCK_SPLITS=triton.next_power_of_2(num_splits),
            num_warps=1,
        )
    return output


def slot_attention_reference(
    query: Tensor,
    cache: Tensor,
    slots: Tensor,
    starts: Tensor | None = None,
    *,
    scales: Tensor | None = None,
) -> Tensor:
    """Compute :func:`slot_attention` with torch alone, on a copy of the slots."""
    key_value = cache[:, slots]
    if scales is not None:
        key_value = key_value.float() * scales[:, slots, ..., None].float()
    key, value = key_value.to(query.dtype).unbind()
    mask = None
    if starts is not None:
        last_seen = starts[:, None] + torch.arange(query.shape[1], device=query.device)
        mask = torch.arange(key.shape[2], device=query.device) <= last_seen[:, None, :, None]
    attended = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, attn_mask=mask)
    return attended.transpose(1, 2).flatten(2)


def write_slots(key_value: Tensor, cache: Tensor, slots: Tensor, starts: Tensor, lengths: Tensor) -> None:
    """Write each row's keys and values into its slot, after the tokens it holds.

    Parameters
    ----------
    key_value : rows x width x 2 (key, value) x heads x head_size.
    cache : 2 x slots x heads x positions x head_size, of the same type. Both may have any strides as long as
        the last dimension is contiguous.
    slots, starts, lengths : integers, one per row: the slot, the tokens it holds, the tokens to write. The
        row's further tokens are padding and are not written, nor is anything after the slot's last position.
        No two rows may write to the same position of a slot.
    """
    rows, width, num_parts, heads, head_size = key_value.shape
    with torch.cuda.device_of(cache):
        _write[width, rows, num_parts](
            key_value,
            cache,
            slots,
            starts,
            lengths,
            *key_value.stride()[:4],
            *cache.stride()[:4],
            heads,
            cache.shape[3],
            HEAD_SIZE=head_size,
            BLOCK_CHANNELS=triton.next_power_of_2(heads * head_size),
        )


def quantise_cache(key_value: Tensor, dtype: torch.dtype = torch.int8) -> tuple[Tensor, Tensor]:
    """Round keys and values to 8 bits, with a scale for each head and position.

    Parameters
    ----------
    key_value : ... x head_size.
    dtype : ``int8``, whose steps are equal, or ``float8_e4m3fn``, whose steps grow with the numbers and are
        coarser on the whole; it needs compute capability 8.9.

    Returns
    -------
    The rounded numbers, of the same shape, and the scales to multiply them by: float16, of that shape
    without ``head_size``.
    """
    limit = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    exact = key_value.float()
    scales = exact.abs().amax(dim=-1) / limit
    scales = scales.clamp(min=torch.finfo(torch.float16).tiny).to(torch.float16)  # never 0
    rounded = (exact / scales[..., None].float()).clamp(-limit, limit)
    if dtype == torch.int8:
        rounded = rounded.round()  # the cast alone would truncate
    return rounded.to(dtype), scales


@functools.cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _kernel(function: Callable[..., None]) -> Any:
    """Compile a function with Triton when it is launched; without Triton, return it."""
    return function if triton is None else triton.jit(function)


@_kernel
def _attend(
    partials: tl.tensor,  # rows x width x heads x splits x head_size
    log_weights: tl.tensor,  # rows x width x heads x splits
    query: tl.tensor,
    cache: tl.tensor,
    scales: tl.tensor,
    slots: tl.tensor,
    starts: tl.tensor,
    query_row_stride: tl.tensor,
    query_token_stride: tl.tensor,
    query_head_stride: tl.tensor,
    cache_part_stride: tl.tensor,
    cache_slot_stride: tl.tensor,
    cache_head_stride: tl.tensor,
    cache_position_stride: tl.tensor,
    scales_part_stride: tl.tensor,
    scales_slot_stride: tl.tensor,
    scales_head_stride: tl.tensor,
    width: tl.tensor,
    num_positions: tl.tensor,
    split_size: tl.tensor,
    score_scale: tl.tensor,  # for exponents to the base 2, which the hardware computes
    HEAD_SIZE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_POSITIONS: tl.constexpr,
) -> None:
    """Attend to one split of the positions: one head, one block of a row's queries."""
    split = tl.program_id(0)
    head = tl.program_id(1)
    num_blocks = tl.cdiv(width, BLOCK_QUERIES)
    row = tl.program_id(2) // num_blocks
    first_token = tl.program_id(2) % num_blocks * BLOCK_QUERIES
    slot = tl.load(slots + row).to(tl.int64)  # a cache may have more than 2^31 elements

    token = first_token + tl.arange(0, BLOCK_QUERIES)
    channel = tl.arange(0, HEAD_SIZE)
    is_token = token < width
    queries = tl.load(
        query
        + row * query_row_stride
        + head * query_head_stride
        + token[:, None] * query_token_stride
        + channel[None, :],
        mask=is_token[:, None],
        other=0.0,
    )
    keys = cache + slot * cache_slot_stride + head * cache_head_stride
    values = keys + cache_part_stride
    if scales is not None:
        key_scales = scales + slot * scales_slot_stride + head * scales_head_stride
        value_scales = key_scales + scales_part_stride

    first = split * split_size
    end = tl.minimum(first + split_size, num_positions)
    if starts is not None:
        start = tl.load(starts + row).to(tl.int32)
        last_seen = start + token
        end = tl.minimum(end, start + tl.minimum(first_token + BLOCK_QUERIES, width))

    maximum = tl.full([BLOCK_QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_QUERIES], tl.float32)
    attended = tl.zeros([BLOCK_QUERIES, HEAD_SIZE], tl.float32)
    for block in range(first, end, BLOCK_POSITIONS):
        position = block + tl.arange(0, BLOCK_POSITIONS)
        is_held = position < end
        place = position[:, None] * cache_position_stride + channel[None, :]
        key = tl.load(keys + place, mask=is_held[:, None], other=0.0).to(queries.dtype)
        value = tl.load(values + place, mask=is_held[:, None], other=0.0).to(queries.dtype)

        # A position has one scale, so it can multiply the position's score and, below, its weight.
        score = tl.dot(queries, tl.trans(key), input_precision="ieee") * score_scale
        if scales is not None:
            score *= tl.load(key_scales + position, mask=is_held, other=0.0).to(tl.float32)[None, :]
        is_seen = is_held[None, :]
        if starts is not None:
            is_seen = is_seen & (position[None, :] <= last_seen[:, None])
        score = tl.where(is_seen, score, float("-inf"))

        raised = tl.maximum(maximum, tl.max(score, 1))
        base = tl.where(raised == float("-inf"), 0.0, raised)  # a query may have seen nothing yet
        weight = tl.exp2(score - base[:, None])
        decay = tl.exp2(maximum - base)
        maximum = raised
        total = total * decay + tl.sum(weight, 1)
        if scales is not None:
            weight *= tl.load(value_scales + position, mask=is_held, other=0.0).to(tl.float32)[None, :]
        attended *= decay[:, None]
        attended = tl.dot(weight.to(queries.dtype), value, attended, input_precision="ieee")

    total = tl.where(total == 0.0, 1.0, total)  # a query without a visible position has the weight 2^-inf
    place = ((row * width + token) * tl.num_programs(1) + head) * tl.num_programs(0) + split
    tl.store(log_weights + place, maximum + tl.log2(total), mask=is_token)
    tl.store(
        partials + place[:, None] * HEAD_SIZE + channel[None, :],
        attended / total[:, None],
        mask=is_token[:, None],
    )


@_kernel
def _combine(
    output: tl.tensor,  # vectors x head_size
    partials: tl.tensor,  # vectors x splits x head_size
    log_weights: tl.tensor,  # vectors x splits, to the base 2
    num_splits: tl.tensor,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
) -> None:
    """Combine the splits of one query and head: a weighted average."""
    vector = tl.program_id(0)
    split = tl.arange(0, BLOCK_SPLITS)
    channel = tl.arange(0, HEAD_SIZE)
    is_split = split < num_splits
    place = vector * num_splits + split
    log_weight = tl.load(log_weights + place, mask=is_split, other=float("-inf"))
    partial = tl.load(
        partials + place[:, None] * HEAD_SIZE + channel[None, :], mask=is_split[:, None], other=0.0
    )
    weight = tl.exp2(log_weight - tl.max(log_weight, 0))
    average = tl.sum(partial * weight[:, None], 0) / tl.sum(weight, 0)
    tl.store(output + vector * HEAD_SIZE + channel, average)


@_kernel
def _write(
    key_value: tl.tensor,
    cache: tl.tensor,
    slots: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    row_stride: tl.tensor,
    token_stride: tl.tensor,
    part_stride: tl.tensor,
    head_stride: tl.tensor,
    cache_part_stride: tl.tensor,
    cache_slot_stride: tl.tensor,
    cache_head_stride: tl.tensor,
    cache_position_stride: tl.tensor,
    num_heads: tl.tensor,
    num_positions: tl.tensor,
    HEAD_SIZE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
) -> None:
    """Write the keys or the values of one token."""
    token = tl.program_id(0)
    row = tl.program_id(1)
    part = tl.program_id(2)
    slot = tl.load(slots + row).to(tl.int64)
    position = tl.load(starts + row).to(tl.int32) + token
    is_written = (token < tl.load(lengths + row)) & (position < num_positions)
    channels = tl.arange(0, BLOCK_CHANNELS)
    head = channels // HEAD_SIZE
    channel = channels % HEAD_SIZE
    mask = (head < num_heads) & is_written
    source = key_value + row * row_stride + token * token_stride + part * part_stride
    target = cache + slot * cache_slot_stride + part * cache_part_stride + position * cache_position_stride
    written = tl.load(source + head * head_stride + channel, mask=mask)
    tl.store(target + head * cache_head_stride + channel, written, mask=mask)
