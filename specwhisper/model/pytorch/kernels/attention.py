"""Attention over slots on a CUDA GPU: keys and values are read in place.

Each program serves a head and a block of at most 16 tokens of one row. Launches depend on a bucket alone and
nothing waits for the device: a CUDA graph captures them, and rows, slots and lengths may differ at every
replay. Programs of padding end at once.

Positions are read in blocks of one size, from the start of a split, and splits have the same size in every
bucket. So what a token attends to depends on its slot and not on the rest of the pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from specwhisper.model.pytorch.kernels.buckets import BLOCK_TOKENS
from specwhisper.model.pytorch.kernels.jit import LOG2_E, kernel, supports, tl
from specwhisper.model.pytorch.kernels.packed_inputs import Blocks, PackedInputs

# Estimates for an H200, from the registers and shared memory of a program; not measured.
BLOCK_BYTES = 128  # of each channel in one read of a program: 64 positions of 16 bits, 128 of 8
# One session has few heads and a GPU many processors, so cross-attention's positions are split over programs
# (flash-decoding): for large-v3 20 heads x 8 splits, on 132 processors.
SPLIT_POSITIONS = 192
# The length of a slot is known on the device only. Most hold one block or two: splits would gain nothing.


class CrossScratch:
    """Results of cross-attention's splits until they are combined; of all layers.

    Parameters
    ----------
    num_blocks, num_heads, num_positions, head_size : largest sizes of a pass.
    """

    def __init__(
        self, num_blocks: int, num_heads: int, num_positions: int, head_size: int, device: torch.device
    ) -> None:
        shape = (num_blocks, num_heads, num_splits(num_positions), BLOCK_TOKENS)
        self.partials = torch.empty((*shape, head_size), dtype=torch.float32, device=device)
        self.log_weights = torch.empty(shape, dtype=torch.float32, device=device)
        # Programs of a block and head that are done; the last one combines them all and resets this to 0.
        self.arrivals = torch.zeros(shape[:2], dtype=torch.int32, device=device)


def supports_cache(cache: Tensor) -> bool:
    """Return whether the kernels support a cache, by its head size and device."""
    head_size = cache.shape[-1]
    return supports(cache) and head_size >= 16 and head_size & (head_size - 1) == 0


def num_splits(num_positions: int) -> int:
    """Return the splits of cross-attention's positions."""
    return -(-num_positions // SPLIT_POSITIONS)


def attend_self(qkv: Tensor, cache: Tensor, inputs: PackedInputs) -> Tensor:
    """Write each token's keys and values into its slot, then attend to them.

    Parameters
    ----------
    qkv : tokens x 3 (query, key, value) x heads x head_size, contiguous.
    cache : 2 (keys, values) x slots x heads x positions x head_size, of the same type, with any strides as
        long as the last dimension is contiguous.

    Returns
    -------
    tokens x (heads x head_size), of the same type. What is in the rows of padding is undefined.
    """
    if not supports_cache(cache):
        return attend_self_reference(qkv, cache, inputs)
    num_tokens, _, heads, head_size = qkv.shape
    output = torch.empty((num_tokens, heads * head_size), dtype=qkv.dtype, device=qkv.device)
    with torch.cuda.device_of(cache):  # Triton launches on the current device
        self_attention_kernel[heads, len(inputs.blocks.firsts)](
            output,
            qkv,
            cache,
            inputs.slots,
            inputs.positions,
            *inputs.blocks,
            *cache.stride()[:4],
            head_size**-0.5 * LOG2_E,
            HEAD_SIZE=head_size,
            BLOCK_QUERIES=BLOCK_TOKENS,
            BLOCK_POSITIONS=BLOCK_BYTES // cache.element_size(),
            num_warps=4,
            num_stages=2,
        )
    return output


def attend_cross(
    query: Tensor, cache: Tensor, scales: Tensor | None, inputs: PackedInputs, scratch: CrossScratch | None
) -> Tensor:
    """Attend from each token to every position in its slot.

    Parameters
    ----------
    query : tokens x heads x head_size, contiguous.
    cache : 2 (keys, values) x slots x heads x positions x head_size, of the query's type or quantised.
    scales : of a quantised cache, as :func:`specwhisper.model.pytorch.kernels.quantised.quantise_cache`
        returns them.
    scratch : may be ``None`` where the kernels do not support the cache.

    Returns
    -------
    tokens x (heads x head_size), of the query's type. What is in the rows of padding is undefined.
    """
    if scratch is None or not supports_cache(cache):
        return attend_cross_reference(query, cache, scales, inputs)
    num_tokens, heads, head_size = query.shape
    num_positions, blocks = cache.shape[3], inputs.blocks
    output = torch.empty((num_tokens, heads * head_size), dtype=query.dtype, device=query.device)
    splits = num_splits(num_positions)
    with torch.cuda.device_of(cache):
        cross_attention_kernel[splits, heads, len(blocks.firsts)](
            output,
            scratch.partials,
            scratch.log_weights,
            scratch.arrivals,
            query,
            cache,
            scales,
            inputs.slots,
            blocks.firsts,
            blocks.counts,
            *cache.stride()[:4],
            *((0, 0, 0) if scales is None else scales.stride()[:3]),
            num_positions,
            head_size**-0.5 * LOG2_E,
            HEAD_SIZE=head_size,
            BLOCK_QUERIES=BLOCK_TOKENS,
            BLOCK_POSITIONS=BLOCK_BYTES // cache.element_size(),
            SPLIT_SIZE=SPLIT_POSITIONS,
            NUM_SPLITS=splits,
            num_warps=4,
            num_stages=3,
        )
    return output


def attend_self_reference(qkv: Tensor, cache: Tensor, inputs: PackedInputs) -> Tensor:
    """Compute :func:`attend_self` with torch alone, on a copy of the slots."""
    cache[:, inputs.slots, :, inputs.positions] = qkv[:, 1:]
    last_seen = _by_block(inputs.positions, inputs.blocks)[:, None, :, None]
    is_seen = torch.arange(cache.shape[3], device=cache.device) <= last_seen
    return _attend(qkv[:, 0], cache[:, inputs.slots[inputs.blocks.firsts]], inputs.blocks, is_seen)


def attend_cross_reference(
    query: Tensor, cache: Tensor, scales: Tensor | None, inputs: PackedInputs
) -> Tensor:
    """Compute :func:`attend_cross` with torch alone, on a copy of the slots."""
    slots = inputs.slots[inputs.blocks.firsts]
    key_value = cache[:, slots]
    if scales is not None:
        key_value = (key_value.float() * scales[:, slots, ..., None].float()).to(query.dtype)
    return _attend(query, key_value, inputs.blocks)


def _attend(query: Tensor, key_value: Tensor, blocks: Blocks, is_seen: Tensor | None = None) -> Tensor:
    """Attend from tokens to the keys and values of their block, 2 x blocks x heads x positions x ..."""
    key, value = key_value.unbind()
    by_block = _by_block(query, blocks).transpose(1, 2)
    attended = F.scaled_dot_product_attention(by_block, key, value, attn_mask=is_seen)
    num_tokens, number = len(query), torch.arange(BLOCK_TOKENS, device=query.device)
    tokens = (blocks.firsts[:, None] + number).where(number < blocks.counts[:, None], num_tokens)
    output = attended.new_zeros(num_tokens + 1, query.shape[1] * query.shape[2])
    output[tokens.flatten()] = attended.transpose(1, 2).flatten(2).flatten(0, 1)
    return output[:num_tokens]


def _by_block(values: Tensor, blocks: Blocks) -> Tensor:
    """Return tokens' values as blocks x 16 x ...; what follows a block's tokens is not its own."""
    tokens = blocks.firsts[:, None] + torch.arange(BLOCK_TOKENS, device=values.device)
    return values[tokens.clamp(max=len(values) - 1)]


@kernel
def _attend_positions(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    last_seen: tl.tensor,  # of each query; None: every position
    first: tl.tensor,
    end: tl.tensor,
    position_stride: tl.tensor,
    score_scale: tl.tensor,
    HEAD_SIZE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_POSITIONS: tl.constexpr,
) -> tl.tensor:
    """Attend to positions; return the average of their values, and the logarithm of its weight."""
    maximum = tl.full([BLOCK_QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_QUERIES], tl.float32)
    attended = tl.zeros([BLOCK_QUERIES, HEAD_SIZE], tl.float32)
    channel = tl.arange(0, HEAD_SIZE)
    for block in range(first, end, BLOCK_POSITIONS):
        position = block + tl.arange(0, BLOCK_POSITIONS)
        is_held = position < end
        place = position[:, None] * position_stride + channel[None, :]
        key = tl.load(keys + place, mask=is_held[:, None], other=0.0).to(queries.dtype)
        value = tl.load(values + place, mask=is_held[:, None], other=0.0).to(queries.dtype)

        # A position has one scale, so it can multiply the position's score and, below, its weight.
        score = tl.dot(queries, tl.trans(key), input_precision="ieee") * score_scale
        if key_scales is not None:
            score *= tl.load(key_scales + position, mask=is_held, other=0.0).to(tl.float32)[None, :]
        is_seen = is_held[None, :]
        if last_seen is not None:
            is_seen = is_seen & (position[None, :] <= last_seen[:, None])
        score = tl.where(is_seen, score, float("-inf"))

        raised = tl.maximum(maximum, tl.max(score, 1))
        base = tl.where(raised == float("-inf"), 0.0, raised)  # a query may have seen nothing yet
        weight = tl.exp2(score - base[:, None])
        decay = tl.exp2(maximum - base)
        maximum = raised
        total = total * decay + tl.sum(weight, 1)
        if value_scales is not None:
            weight *= tl.load(value_scales + position, mask=is_held, other=0.0).to(tl.float32)[None, :]
        attended *= decay[:, None]
        attended = tl.dot(weight.to(queries.dtype), value, attended, input_precision="ieee")
    total = tl.where(total == 0.0, 1.0, total)  # without a visible position, the weight is 2^-inf
    return attended / total[:, None], maximum + tl.log2(total)


@kernel
def self_attention_kernel(
    output: tl.tensor,  # tokens x heads x head_size
    qkv: tl.tensor,  # tokens x 3 x heads x head_size
    cache: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    firsts: tl.tensor,
    counts: tl.tensor,
    row_firsts: tl.tensor,
    cache_part_stride: tl.tensor,
    cache_slot_stride: tl.tensor,
    cache_head_stride: tl.tensor,
    cache_position_stride: tl.tensor,
    score_scale: tl.tensor,
    HEAD_SIZE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_POSITIONS: tl.constexpr,
) -> None:
    """Write one head's keys and values up to a block's end, then attend."""
    head = tl.program_id(0)
    num_heads = tl.num_programs(0)
    block = tl.program_id(1)
    count = tl.load(counts + block)
    if count == 0:
        return
    first = tl.load(firsts + block)
    row_first = tl.load(row_firsts + block)
    slot = tl.load(slots + first).to(tl.int64)  # a cache may have more than 2^31 elements
    held = tl.load(positions + row_first)
    keys = cache + slot * cache_slot_stride + head * cache_head_stride
    values = keys + cache_part_stride
    channel = tl.arange(0, HEAD_SIZE)
    part = num_heads * HEAD_SIZE
    ours = qkv + head * HEAD_SIZE

    # The programs of a row's later blocks write the earlier ones too, since they attend to them: all write
    # the same numbers, and each waits for its own only.
    for at in range(row_first, first + count, BLOCK_QUERIES):
        token = at + tl.arange(0, BLOCK_QUERIES)
        is_written = (token < first + count)[:, None]
        source = ours + token[:, None] * (3 * part) + channel[None, :]
        place = (held + token - row_first)[:, None] * cache_position_stride + channel[None, :]
        tl.store(keys + place, tl.load(source + part, mask=is_written), mask=is_written)
        tl.store(values + place, tl.load(source + 2 * part, mask=is_written), mask=is_written)
    tl.debug_barrier()

    number = tl.arange(0, BLOCK_QUERIES)
    is_token = (number < count)[:, None]
    token = first + number
    queries = tl.load(ours + token[:, None] * (3 * part) + channel[None, :], mask=is_token, other=0.0)
    start = held + first - row_first
    attended, _ = _attend_positions(
        queries,
        keys,
        values,
        None,
        None,
        start + number,
        0,
        start + count,
        cache_position_stride,
        score_scale,
        HEAD_SIZE,
        BLOCK_QUERIES,
        BLOCK_POSITIONS,
    )
    place = token[:, None] * part + head * HEAD_SIZE + channel[None, :]
    tl.store(output + place, attended, mask=is_token)


@kernel
def cross_attention_kernel(
    output: tl.tensor,  # tokens x heads x head_size
    partials: tl.tensor,  # blocks x heads x splits x queries x head_size
    log_weights: tl.tensor,  # blocks x heads x splits x queries, to the base 2
    arrivals: tl.tensor,  # blocks x heads
    query: tl.tensor,  # tokens x heads x head_size
    cache: tl.tensor,
    scales: tl.tensor,
    slots: tl.tensor,
    firsts: tl.tensor,
    counts: tl.tensor,
    cache_part_stride: tl.tensor,
    cache_slot_stride: tl.tensor,
    cache_head_stride: tl.tensor,
    cache_position_stride: tl.tensor,
    scales_part_stride: tl.tensor,
    scales_slot_stride: tl.tensor,
    scales_head_stride: tl.tensor,
    num_positions: tl.tensor,
    score_scale: tl.tensor,
    HEAD_SIZE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_POSITIONS: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
) -> None:
    """Attend to one split of the positions; the last program combines them."""
    split = tl.program_id(0)
    head = tl.program_id(1)
    num_heads = tl.num_programs(1)
    block = tl.program_id(2)
    count = tl.load(counts + block)
    if count == 0:
        return
    first = tl.load(firsts + block)
    slot = tl.load(slots + first).to(tl.int64)
    keys = cache + slot * cache_slot_stride + head * cache_head_stride
    key_scales = None
    value_scales = None
    if scales is not None:
        key_scales = scales + slot * scales_slot_stride + head * scales_head_stride
        value_scales = key_scales + scales_part_stride

    number = tl.arange(0, BLOCK_QUERIES)
    channel = tl.arange(0, HEAD_SIZE)
    is_token = (number < count)[:, None]
    place = ((first + number) * num_heads + head)[:, None] * HEAD_SIZE + channel[None, :]
    queries = tl.load(query + place, mask=is_token, other=0.0)
    attended, log_weight = _attend_positions(
        queries,
        keys,
        keys + cache_part_stride,
        key_scales,
        value_scales,
        None,
        split * SPLIT_SIZE,
        tl.minimum((split + 1) * SPLIT_SIZE, num_positions),
        cache_position_stride,
        score_scale,
        HEAD_SIZE,
        BLOCK_QUERIES,
        BLOCK_POSITIONS,
    )
    of_block = block * num_heads + head
    mine = (of_block * NUM_SPLITS + split) * BLOCK_QUERIES + number
    tl.store(log_weights + mine, log_weight, mask=number < count)
    tl.store(partials + mine[:, None] * HEAD_SIZE + channel[None, :], attended, mask=is_token)

    tl.debug_barrier()  # every thread has stored its part
    if tl.atomic_add(arrivals + of_block, 1, sem="acq_rel") < NUM_SPLITS - 1:
        return
    tl.store(arrivals + of_block, 0)
    # Other processors stored the parts: read them past this one's cache, in an order that is always the same.
    # The loops are unrolled, so that no read waits for another.
    parts = of_block * NUM_SPLITS * BLOCK_QUERIES + number
    largest = tl.full([BLOCK_QUERIES], float("-inf"), tl.float32)
    for part in tl.static_range(NUM_SPLITS):
        weight = tl.load(
            log_weights + parts + part * BLOCK_QUERIES, mask=number < count, cache_modifier=".cg"
        )
        largest = tl.maximum(largest, weight)
    total = tl.zeros([BLOCK_QUERIES], tl.float32)
    average = tl.zeros([BLOCK_QUERIES, HEAD_SIZE], tl.float32)
    for part in tl.static_range(NUM_SPLITS):
        theirs = parts + part * BLOCK_QUERIES
        weight = tl.load(log_weights + theirs, mask=number < count, cache_modifier=".cg")
        weight = tl.exp2(weight - largest)
        total += weight
        place_of_part = theirs[:, None] * HEAD_SIZE + channel[None, :]
        average += weight[:, None] * tl.load(partials + place_of_part, mask=is_token, cache_modifier=".cg")
    tl.store(output + place, average / total[:, None], mask=is_token)
