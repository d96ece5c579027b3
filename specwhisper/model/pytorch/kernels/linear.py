"""Projections of a few tokens on a GPU, joined with norms and residuals.

A pass of a few tokens takes as long as its weights take to be read, and each further kernel adds a start and
a round through memory. So a layer's norm is computed again by every program of the projection after it, and a
residual is added as a projection's result is stored. With many tokens torch's own products are faster.

Each number of a result is one sum over all inputs in the same order, whatever else is in the pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specwhisper.model.pytorch.kernels.jit import kernel, tl, triton

# Estimates for an H200; not measured.
MAX_FUSED_TOKENS = 128  # of a layer's projections; with more, torch's products win
BLOCK_BYTES = 256  # of each output's weights in one read: 128 of 16 bits, 64 of 32
MAX_BLOCK_TOKENS = 64  # programs of further tokens run beside each other, and share the weights they read
# That a program reads ahead. For 1,280 outputs there are fewer programs than processors, so each must have
# more under way to use the memory's speed: 32 KiB of weights every 0.7 us, on 80 processors, are 3.7 TB/s.
STAGED_BYTES = 64 * 1024


def norm_linear(
    hidden: Tensor,
    norm: nn.LayerNorm,
    linear: nn.Linear,
    *,
    gelu: bool = False,
    out: Tensor | None = None,
    is_fused: bool,
) -> Tensor:
    """Normalise tokens, then project them.

    Parameters
    ----------
    hidden : tokens x inputs, contiguous.
    gelu : apply the exact GELU to the result.
    out : where the result goes, of any type; by default new memory, of the type of ``hidden``.
    is_fused : use the kernel, on a GPU.

    Returns
    -------
    tokens x outputs.
    """
    if not is_fused:
        projected: Tensor = linear(norm(hidden))
        projected = F.gelu(projected) if gelu else projected
        return projected if out is None else out.copy_(projected)
    (num_tokens, num_inputs), num_outputs = hidden.shape, linear.out_features
    output = hidden.new_empty((num_tokens, num_outputs)) if out is None else out
    block_tokens, block_outputs = _block(num_tokens, num_outputs, linear.weight.element_size())
    with torch.cuda.device_of(hidden):
        norm_linear_kernel[triton.cdiv(num_tokens, block_tokens), triton.cdiv(num_outputs, block_outputs)](
            output,
            hidden,
            norm.weight,
            norm.bias,
            linear.weight,
            linear.bias,
            num_tokens,
            num_outputs,
            norm.eps,
            NUM_INPUTS=num_inputs,
            HAS_GELU=gelu,
            BLOCK_TOKENS=block_tokens,
            BLOCK_OUTPUTS=block_outputs,
            BLOCK_INPUTS=BLOCK_BYTES // linear.weight.element_size(),
            num_warps=4,
            num_stages=_stages(block_tokens, block_outputs),
        )
    return output


def linear_add(values: Tensor, linear: nn.Linear, hidden: Tensor, *, is_fused: bool) -> Tensor:
    """Project tokens and add the result to their hidden states.

    Parameters
    ----------
    values, hidden : tokens x inputs and tokens x outputs, contiguous.
    is_fused : as for :func:`norm_linear`.

    Returns
    -------
    tokens x outputs.
    """
    if not is_fused:
        projected: Tensor = linear(values)
        return hidden + projected
    (num_tokens, num_inputs), num_outputs = values.shape, linear.out_features
    output = torch.empty_like(hidden)
    block_tokens, block_outputs = _block(num_tokens, num_outputs, linear.weight.element_size())
    with torch.cuda.device_of(hidden):
        linear_add_kernel[triton.cdiv(num_tokens, block_tokens), triton.cdiv(num_outputs, block_outputs)](
            output,
            values,
            linear.weight,
            linear.bias,
            hidden,
            num_tokens,
            num_outputs,
            NUM_INPUTS=num_inputs,
            BLOCK_TOKENS=block_tokens,
            BLOCK_OUTPUTS=block_outputs,
            BLOCK_INPUTS=BLOCK_BYTES // linear.weight.element_size(),
            num_warps=4,
            num_stages=_stages(block_tokens, block_outputs),
        )
    return output


def _block(num_tokens: int, num_outputs: int, element_size: int) -> tuple[int, int]:
    """Return the tokens and the outputs of a program: enough programs for every processor."""
    block_tokens, most = 16, MAX_BLOCK_TOKENS * 2 // element_size  # half as many in float32: registers
    while block_tokens < min(num_tokens, most):
        block_tokens *= 2
    return block_tokens, 16 if num_outputs < 2_048 else 32 if num_outputs < 16_384 else 64


def _stages(block_tokens: int, block_outputs: int) -> int:
    """Return the blocks of inputs that a program reads ahead, and the one that it multiplies."""
    return max(3, 1 + STAGED_BYTES // ((block_tokens + block_outputs) * BLOCK_BYTES))


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
    squares = tl.zeros([BLOCK_TOKENS], tl.float32)  # of the deviations from the mean
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
