"""Every kernel of a forward pass against float64, at a shape's true width."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.gpu.figures import Check
from experiments.gpu.weights import Weights
from specwhisper.model.pytorch.kernels.attention import (
    CrossScratch,
    attend_cross,
    attend_cross_reference,
    attend_self,
    attend_self_reference,
    supports_cache,
)
from specwhisper.model.pytorch.kernels.buckets import BLOCKS, bucket_for
from specwhisper.model.pytorch.kernels.choice import Rules, choose_tokens, choose_tokens_reference
from specwhisper.model.pytorch.kernels.layer_cache import CROSS_CACHE_DTYPES, BatchRow
from specwhisper.model.pytorch.kernels.linear import linear_add, norm_linear
from specwhisper.model.pytorch.kernels.packed_inputs import Following, PackedInputs
from specwhisper.model.pytorch.kernels.quantised import quantise_cache

NUM_SLOTS = 4
ROWS = (BatchRow(2, 60, [7] * 5), BatchRow(0, 0, [7] * 40), BatchRow(1, 99, [7]))
NUM_TOKENS = sum(len(row.tokens) for row in ROWS)
CLOSE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}  # of the largest number of a result


def check_kernels(weights: Weights, dtype: str) -> Iterator[Check]:
    """Compare each kernel with torch in float64."""
    random = torch.Generator(weights.place.device).manual_seed(weights.place.seed)

    def normal(*shape: int) -> Tensor:
        made = torch.randn(shape, generator=random, device=weights.place.device)
        return made.to(getattr(torch, dtype))

    def check(name: str, found: Tensor, exact: Tensor, close: float = CLOSE[dtype]) -> Check:
        error = float((found.double() - exact.double()).abs().max() / exact.double().abs().max())
        return Check(f"{weights.name}: {name}, {dtype}", error < close, f"within {error:.1g} of the largest")

    yield from _attention(weights, normal, check)
    yield from _projections(weights, normal, check)
    if dtype == "float32":  # the only type of logits
        yield _choices(weights)


@torch.inference_mode()
def _attention(
    weights: Weights, normal: Callable[..., Tensor], check: Callable[[str, Tensor, Tensor], Check]
) -> Iterator[Check]:
    config, inputs = weights.config, _inputs(weights)
    heads = config.decoder_attention_heads
    head_size, num_tokens = config.d_model // heads, len(inputs.ids)
    qkv = normal(num_tokens, 3, heads, head_size)
    cache = normal(2, NUM_SLOTS + 1, heads, config.max_target_positions, head_size)
    exact = attend_self_reference(qkv.double(), cache.double(), inputs)
    yield check("self-attention", attend_self(qkv, cache, inputs)[:NUM_TOKENS], exact[:NUM_TOKENS])
    query = normal(num_tokens, heads, head_size)
    window = normal(2, NUM_SLOTS + 1, heads, config.max_source_positions, head_size)
    for name, dtype in (("", None), *CROSS_CACHE_DTYPES.items()):
        cache, scales = (window, None) if dtype is None else quantise_cache(window, dtype)
        scratch = None
        if supports_cache(cache):
            size = (BLOCKS[-1], heads, config.max_source_positions, head_size)
            scratch = CrossScratch(*size, weights.place.device)
        exact = attend_cross_reference(
            query.double(), cache.double(), None if scales is None else scales.double(), inputs
        )
        found = attend_cross(query, cache, scales, inputs, scratch)
        yield check(f"cross-attention {name}".strip(), found[:NUM_TOKENS], exact[:NUM_TOKENS])


@torch.inference_mode()
def _projections(
    weights: Weights, normal: Callable[..., Tensor], check: Callable[[str, Tensor, Tensor], Check]
) -> Iterator[Check]:
    config, has_kernels = weights.config, weights.place.is_gpu
    width, hidden_width = config.d_model, config.decoder_ffn_dim
    norm, into, back = nn.LayerNorm(width), nn.Linear(width, hidden_width), nn.Linear(hidden_width, width)
    for module in (norm, into, back):
        module.to(weights.place.device, normal(1).dtype)
    for num_tokens in (1, 8, 33, 128):
        hidden, values = normal(num_tokens, width), normal(num_tokens, hidden_width)
        normed = F.layer_norm(hidden.double(), (width,), norm.weight.double(), norm.bias.double())
        exact = F.gelu(normed @ into.weight.double().T + into.bias.double())
        found = norm_linear(hidden, norm, into, gelu=True, is_fused=has_kernels)
        yield check(f"norm and projection of {num_tokens}", found, exact)
        exact = hidden.double() + values.double() @ back.weight.double().T + back.bias.double()
        found = linear_add(values, back, hidden, is_fused=has_kernels)
        yield check(f"projection and residual of {num_tokens}", found, exact)


@torch.inference_mode()
def _choices(weights: Weights) -> Check:
    size, device, inputs = weights.config.vocab_size, weights.place.device, _inputs(weights)
    random = torch.Generator(device).manual_seed(weights.place.seed)
    logits = torch.randn((len(inputs.ids), size), generator=random, device=device)
    is_forbidden = torch.rand((3, size), generator=random, device=device) < 0.1
    rules = Rules(is_forbidden, timestamp_begin=size - 100, first_timed_state=1)
    found = choose_tokens(logits, rules, inputs)[:NUM_TOKENS]
    exact = choose_tokens_reference(logits.double(), rules, inputs)[:NUM_TOKENS]
    is_same = torch.equal(found[:, 0].double(), exact[:, 0].double())
    error = float((found[:, 1:3] - exact[:, 1:3]).abs().max())
    shown = f"{'the same' if is_same else 'OTHER'} tokens, log-probabilities within {error:.1g}"
    return Check(f"{weights.name}: choices", is_same and error < 1e-4, shown)


def _inputs(weights: Weights) -> PackedInputs:
    bucket = bucket_for([len(row.tokens) for row in ROWS])
    inputs = PackedInputs(bucket, weights.place.device, spare_slot=NUM_SLOTS)
    following = [Following([(i, 0, 60 + i)] * len(row.tokens), 0) for i, row in enumerate(ROWS)]
    inputs.fill(ROWS, following)
    return inputs
