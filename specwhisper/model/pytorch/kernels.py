"""A decoder layer's operations as Triton kernels, which a CUDA graph captures.

Launches depend on a size of pass alone and nothing waits for the device, so rows, slots and lengths may
differ at every replay. Keys and values are read in place. Each number of a result is one sum in one order,
and positions are read in blocks of one size from the start of a split: what a token gets does not depend on
the rest of its pass.

Nothing of this has run on a GPU. :mod:`specwhisper.model.pytorch.self_test` compares it with
:class:`PlainOperations` before it serves; its sizes are estimates for an H200.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.pytorch.operations import BLOCK_TOKENS, Places, PlainOperations
from specwhisper.model.pytorch.packed import BLOCKS

try:  # part of torch's CUDA builds on Linux
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

LOG2_E = math.log2(math.e)  # the hardware computes exponents to the base 2
CACHE_BYTES = 128  # read at once from each channel of keys or values: 64 positions of 16 bits
# One session has few heads and a GPU many processors, so cross-attention's positions are split over programs
# (flash-decoding): for large-v3 20 heads x 8 splits, on 132 processors. Most slots hold one or two blocks of
# text, so self-attention has no splits.
SPLIT_POSITIONS = 192
MAX_FUSED_TOKENS = 128  # in a layer's projections; with more, torch's products win
WEIGHT_BYTES = 256  # read at once from each output's weights: 128 of 16 bits, 64 of 32
MAX_BLOCK_TOKENS = 64  # programs of further tokens run beside each other, and share the weights they read
# Read ahead by a program. For 1,280 outputs there are fewer programs than processors, so each must have
# more under way to use the memory's speed: 32 KiB of weights every 0.7 us, on 80 processors, are 3.7 TB/s.
STAGED_BYTES = 64 * 1024


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with Triton when it is launched; without Triton, return it."""
    return function if triton is None else triton.jit(function)


def reason_against(device: torch.device, head_size: int) -> str | None:
    """Return why no kernel can run on a device with heads of a size, if there is a reason."""
    if triton is None:
        return "Triton is not installed" if device.type == "cuda" else "it is not a CUDA GPU"
    if device.type == "cpu" and not isinstance(linear_add_kernel, triton.JITFunction):
        return None  # Triton's interpreter runs them
    if device.type != "cuda":
        return "it is not a CUDA GPU"
    if torch.version.hip is not None:
        return "no kernel was compiled or tried on an AMD GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "kernels need compute capability 8.0"
    if head_size < 16 or head_size & (head_size - 1):
        return f"heads of {head_size} numbers are not a power of two of at least 16"
    return None


def num_splits(num_positions: int) -> int:
    return -(-num_positions // SPLIT_POSITIONS)


class FusedOperations(PlainOperations):
    """:class:`PlainOperations` as kernels."""

    def __init__(self, sizes: ModelSizes, device: torch.device) -> None:
        # Results of cross-attention's splits until they are combined, for all layers.
        heads = sizes.decoder_attention_heads
        shape = (BLOCKS[-1], heads, num_splits(sizes.max_source_positions), BLOCK_TOKENS)
        self.partials = torch.empty((*shape, sizes.d_model // heads), dtype=torch.float32, device=device)
        self.log_weights = torch.empty(shape, dtype=torch.float32, device=device)
        # Programs of a block and head that are done; the last one combines them all and resets this to 0.
        self.arrivals = torch.zeros(shape[:2], dtype=torch.int32, device=device)

    def norm_linear(
        self,
        hidden: Tensor,
        norm: nn.LayerNorm,
        linear: nn.Linear,
        *,
        gelu: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        """Compute the norm again in every program of the projection, which saves a launch."""
        if out is None and len(hidden) > MAX_FUSED_TOKENS:
            return super().norm_linear(hidden, norm, linear, gelu=gelu)
        output = hidden.new_empty((len(hidden), linear.out_features)) if out is None else out
        _launch_projection(
            norm_linear_kernel,
            linear,
            (output, hidden, norm.weight, norm.bias, linear.weight, linear.bias),
            (len(hidden), linear.out_features, norm.eps),
            HAS_GELU=gelu,
        )
        return output

    def linear_add(self, values: Tensor, linear: nn.Linear, hidden: Tensor) -> Tensor:
        """Add the hidden states as the projection's result is stored."""
        if len(values) > MAX_FUSED_TOKENS:
            return super().linear_add(values, linear, hidden)
        output = torch.empty_like(hidden)
        tensors = output, values, linear.weight, linear.bias, hidden
        _launch_projection(linear_add_kernel, linear, tensors, (len(values), linear.out_features))
        return output

    def attend_self(self, qkv: Tensor, cache: Tensor, places: Places) -> Tensor:
        num_tokens, _, heads, head_size = qkv.shape
        output = torch.empty((num_tokens, heads * head_size), dtype=qkv.dtype, device=qkv.device)
        with torch.cuda.device_of(cache):  # Triton launches on the current device
            self_attention_kernel[heads, len(places.firsts)](
                output,
                qkv,
                cache,
                *places,
                *cache.stride()[:4],
                head_size**-0.5 * LOG2_E,
                HEAD_SIZE=head_size,
                BLOCK_QUERIES=BLOCK_TOKENS,
                BLOCK_POSITIONS=CACHE_BYTES // cache.element_size(),
                num_warps=4,
                num_stages=2,
            )
        return output

    def attend_cross(self, query: Tensor, cache: Tensor, places: Places) -> Tensor:
        num_tokens, heads, head_size = query.shape
        num_positions, splits = cache.shape[3], num_splits(cache.shape[3])
        output = torch.empty((num_tokens, heads * head_size), dtype=query.dtype, device=query.device)
        with torch.cuda.device_of(cache):
            cross_attention_kernel[splits, heads, len(places.firsts)](
                output,
                self.partials,
                self.log_weights,
                self.arrivals,
                query,
                cache,
                places.slots,
                places.firsts,
                places.counts,
                *cache.stride()[:4],
                num_positions,
                head_size**-0.5 * LOG2_E,
                HEAD_SIZE=head_size,
                BLOCK_QUERIES=BLOCK_TOKENS,
                BLOCK_POSITIONS=CACHE_BYTES // cache.element_size(),
                SPLIT_SIZE=SPLIT_POSITIONS,
                NUM_SPLITS=splits,
                num_warps=4,
                num_stages=3,
            )
        return output


def _launch_projection(
    compiled: Any, linear: nn.Linear, tensors: tuple[Tensor, ...], numbers: tuple[float, ...], **kinds: bool
) -> None:
    """Launch enough programs for every processor; ``numbers`` begin with tokens and outputs."""
    element_size = linear.weight.element_size()
    num_tokens, num_outputs = int(numbers[0]), linear.out_features
    block_tokens, most = 16, MAX_BLOCK_TOKENS * 2 // element_size  # half as many in float32: registers
    while block_tokens < min(num_tokens, most):
        block_tokens *= 2
    block_outputs = 16 if num_outputs < 2_048 else 32 if num_outputs < 16_384 else 64
    grid = triton.cdiv(num_tokens, block_tokens), triton.cdiv(num_outputs, block_outputs)
    with torch.cuda.device_of(tensors[0]):
        compiled[grid](
            *tensors,
            *numbers,
            NUM_INPUTS=linear.in_features,
            **kinds,
            BLOCK_TOKENS=block_tokens,
            BLOCK_OUTPUTS=block_outputs,
            BLOCK_INPUTS=WEIGHT_BYTES // element_size,
            num_warps=4,
            num_stages=max(3, 1 + STAGED_BYTES // ((block_tokens + block_outputs) * WEIGHT_BYTES)),
        )


@kernel
def norm_linear_kernel(
    output: tl.tensor,  # tokens x outputs
    hidden: tl.tensor,  # tokens x inputs
    norm_weight: tl.tensor,
    norm_bias: tl.tensor,
    weight: tl.tensor,  # outputs x inputs
    bias: tl.tensor,  # or None
    num_tokens: tl.tensor,
    num_outputs: tl.tensor,
    eps: tl.tensor,
    NUM_INPUTS: tl.constexpr,
    HAS_GELU: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
) -> None:
    """Normalise a block of tokens and compute some of their outputs."""
    token = tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    result = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    is_token = token < num_tokens
    is_result = result < num_outputs
    inputs = hidden + token[:, None] * NUM_INPUTS
    # The norm reads inputs once: means and squares of their parts are joined as by Chan et al. (1983). The
    # loop is unrolled, so that no read waits for another.
    mean = tl.zeros([BLOCK_TOKENS], tl.float32)
    squares = tl.zeros([BLOCK_TOKENS], tl.float32)  # sums of squared deviations from the mean
    for first in tl.static_range(0, NUM_INPUTS, BLOCK_INPUTS):
        count = BLOCK_INPUTS if first + BLOCK_INPUTS <= NUM_INPUTS else NUM_INPUTS - first
        channel = first + tl.arange(0, BLOCK_INPUTS)
        mask = is_token[:, None] & (channel < NUM_INPUTS)[None, :]
        value = tl.load(inputs + channel[None, :], mask=mask, other=0.0).to(tl.float32)
        mean_here = tl.sum(value, 1) / count
        deviation = tl.where(mask, value - mean_here[:, None], 0.0)
        apart = mean_here - mean
        mean += apart * (count / (first + count))
        squares += tl.sum(deviation * deviation, 1) + apart * apart * (first * count / (first + count))
    scale = 1.0 / tl.sqrt(squares / NUM_INPUTS + eps)

    total = tl.zeros([BLOCK_TOKENS, BLOCK_OUTPUTS], tl.float32)
    for first in range(0, NUM_INPUTS, BLOCK_INPUTS):
        channel = first + tl.arange(0, BLOCK_INPUTS)
        is_input = channel < NUM_INPUTS
        place = result[:, None].to(tl.int64) * NUM_INPUTS + channel[None, :]
        weights = tl.load(weight + place, mask=is_result[:, None] & is_input[None, :], other=0.0)
        mask = is_token[:, None] & is_input[None, :]
        value = tl.load(inputs + channel[None, :], mask=mask, other=0.0).to(tl.float32)
        value = (value - mean[:, None]) * scale[:, None]
        value *= tl.load(norm_weight + channel, mask=is_input, other=0.0).to(tl.float32)[None, :]
        value += tl.load(norm_bias + channel, mask=is_input, other=0.0).to(tl.float32)[None, :]
        total = tl.dot(value.to(weights.dtype), tl.trans(weights), total, input_precision="ieee")
    if bias is not None:
        total += tl.load(bias + result, mask=is_result, other=0.0).to(tl.float32)[None, :]
    if HAS_GELU:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    place = token[:, None].to(tl.int64) * num_outputs + result[None, :]
    tl.store(output + place, total, mask=is_token[:, None] & is_result[None, :])


@kernel
def linear_add_kernel(
    output: tl.tensor,  # tokens x outputs
    values: tl.tensor,  # tokens x inputs
    weight: tl.tensor,  # outputs x inputs
    bias: tl.tensor,
    hidden: tl.tensor,  # tokens x outputs
    num_tokens: tl.tensor,
    num_outputs: tl.tensor,
    NUM_INPUTS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr,
) -> None:
    """Compute some outputs of a block of tokens and add the hidden states."""
    token = tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    result = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    is_token = token < num_tokens
    is_result = result < num_outputs
    total = tl.zeros([BLOCK_TOKENS, BLOCK_OUTPUTS], tl.float32)
    for first in range(0, NUM_INPUTS, BLOCK_INPUTS):
        channel = first + tl.arange(0, BLOCK_INPUTS)
        is_input = channel < NUM_INPUTS
        place = result[:, None].to(tl.int64) * NUM_INPUTS + channel[None, :]
        weights = tl.load(weight + place, mask=is_result[:, None] & is_input[None, :], other=0.0)
        mask = is_token[:, None] & is_input[None, :]
        value = tl.load(values + token[:, None] * NUM_INPUTS + channel[None, :], mask=mask, other=0.0)
        total = tl.dot(value, tl.trans(weights), total, input_precision="ieee")
    total += tl.load(bias + result, mask=is_result, other=0.0).to(tl.float32)[None, :]
    place = token[:, None] * num_outputs + result[None, :]
    mask = is_token[:, None] & is_result[None, :]
    total += tl.load(hidden + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(output + place, total, mask=mask)


@kernel
def _attend_positions(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    last_seen: tl.tensor,  # each query's last visible position; None: all are
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
        key = tl.load(keys + place, mask=is_held[:, None], other=0.0)
        value = tl.load(values + place, mask=is_held[:, None], other=0.0)

        score = tl.dot(queries, tl.trans(key), input_precision="ieee") * score_scale
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
    slots: tl.tensor,
    firsts: tl.tensor,
    counts: tl.tensor,
    cache_part_stride: tl.tensor,
    cache_slot_stride: tl.tensor,
    cache_head_stride: tl.tensor,
    cache_position_stride: tl.tensor,
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

    number = tl.arange(0, BLOCK_QUERIES)
    channel = tl.arange(0, HEAD_SIZE)
    is_token = (number < count)[:, None]
    place = ((first + number) * num_heads + head)[:, None] * HEAD_SIZE + channel[None, :]
    queries = tl.load(query + place, mask=is_token, other=0.0)
    attended, log_weight = _attend_positions(
        queries,
        keys,
        keys + cache_part_stride,
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
