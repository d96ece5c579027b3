"""Whisper's decoder over preallocated slots: append tokens, roll back.

A slot holds the keys and values of one session: self-attention for every token appended so far,
cross-attention for the encoded window. Rollback moves a position back; the next append overwrites what lies
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from specwhisper.model.backend import wanted_tokens
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import DECODER, EMBEDDING, PROJECTION
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.kernels.graphs import CudaGraphs, uncaptured
from specwhisper.model.pytorch.kernels.layer_cache import (
    CROSS_CACHE_DTYPES,
    BatchRow,
    BatchRunner,
    ForwardBatch,
    LayerCache,
)
from specwhisper.model.pytorch.kernels.padded_runner import PaddedRunner
from specwhisper.model.pytorch.kernels.ragged_runner import RaggedRunner


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, with fused projections."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        width, hidden = sizes.d_model, sizes.decoder_ffn_dim
        self.activation = ACT2FN[sizes.activation_function]
        self.self_norm = nn.LayerNorm(width)
        self.self_qkv = nn.Linear(width, 3 * width)
        self.self_out = nn.Linear(width, width)
        self.cross_norm = nn.LayerNorm(width)
        self.cross_query = nn.Linear(width, width)
        self.cross_kv = nn.Linear(width, 2 * width)
        self.cross_out = nn.Linear(width, width)
        self.ffn_norm = nn.LayerNorm(width)
        self.ffn_in = nn.Linear(width, hidden)
        self.ffn_out = nn.Linear(hidden, width)

    def forward(self, hidden: Tensor, cache: LayerCache, batch: ForwardBatch) -> Tensor:
        """Map the hidden states of a batch's tokens to the next layer's: ... x d_model."""
        attended = batch.attend_self(cache, self.self_qkv(self.self_norm(hidden)))
        hidden = hidden + self.self_out(attended)
        attended = batch.attend_cross(cache, self.cross_query(self.cross_norm(hidden)))
        hidden = hidden + self.cross_out(attended)
        expanded: Tensor = self.activation(self.ffn_in(self.ffn_norm(hidden)))
        return hidden + cast(Tensor, self.ffn_out(expanded))


class CachedDecoder(nn.Module):
    """A Whisper decoder with its slots.

    Attributes
    ----------
    lengths : tokens in each slot; :meth:`append` adds to them, :meth:`rollback` takes from them.
    """

    def __init__(self, sizes: ModelSizes, num_slots: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.num_slots = num_slots
        self.embed_tokens: nn.Module = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.embed_positions = nn.Embedding(sizes.max_target_positions, sizes.d_model)
        self.embed_scale = sizes.d_model**0.5 if sizes.scale_embedding else 1.0
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.decoder_layers))
        self.norm = nn.LayerNorm(sizes.d_model)
        self.unembed = nn.Linear(sizes.d_model, sizes.vocab_size, bias=False)
        self.lengths = [0] * num_slots
        self._caches: list[LayerCache] = []

    def tie(self) -> None:
        """Use the embedding's weight for the projection to logits too."""
        self.unembed.weight = cast(nn.Embedding, self.embed_tokens).weight

    def allocate(self, *, has_static_shapes: bool = False, cross_cache_dtype: str | None = None) -> None:
        """Allocate each layer's cache on the layer's device, once weights are placed.

        Parameters
        ----------
        has_static_shapes : pad batches to a few shapes, as GPUs need it; all weights are on one device then.
        cross_cache_dtype : a key of :data:`CROSS_CACHE_DTYPES` that the cross-attention cache is rounded to;
            only with static shapes.
        """
        sizes, dtype = self.sizes, self.unembed.weight.dtype
        device, heads = execution_device(self.embed_positions), sizes.decoder_attention_heads
        if has_static_shapes:
            self._runner: BatchRunner = PaddedRunner(
                self._run_layers,
                num_positions=sizes.max_target_positions,
                spare_slot=self.num_slots,
                device=device,
                capture=CudaGraphs(device) if device.type == "cuda" else uncaptured,
            )
        else:
            self._runner = RaggedRunner(
                self._run_layers,
                num_positions=sizes.max_target_positions,
                dtype=dtype,
                device=device,
            )
        num_slots = self.num_slots + has_static_shapes  # the last one is for padding
        cross_dtype = CROSS_CACHE_DTYPES[cross_cache_dtype] if cross_cache_dtype else dtype
        for layer in self.layers:
            shape = (2, num_slots, heads, sizes.max_target_positions, sizes.d_model // heads)
            cross_shape = (*shape[:3], sizes.max_source_positions, shape[4])
            device = execution_device(layer)
            self._caches.append(
                LayerCache(
                    torch.zeros(shape, dtype=dtype, device=device),
                    torch.zeros(cross_shape, dtype=cross_dtype, device=device),
                )
            )

    def warm_up(self, width: int) -> None:
        """Capture all shapes of up to ``width`` tokens a slot, if shapes are static."""
        if isinstance(self._runner, PaddedRunner):
            self._runner.warm_up(self.num_slots, width)

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot in all layers."""
        return sum(cache.bytes_per_slot for cache in self._caches)

    @torch.inference_mode()
    def prefill_audio(self, slot: int, encoded: Tensor) -> None:
        """Empty a slot and write its cross-attention cache.

        Parameters
        ----------
        encoded : the encoder's output, positions x d_model.
        """
        for layer, cache in zip(self.layers, self._caches, strict=True):
            cache.write_cross_kv(slot, cast(DecoderLayer, layer).cross_kv(encoded.to(cache.device)))
        self.lengths[slot] = 0

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot."""
        self.lengths[slot] = min(self.lengths[slot], length)

    @torch.inference_mode()
    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Tensor:
        """Append rows of tokens, as :meth:`specwhisper.model.backend.Backend.append`."""
        hidden = self._run(slots, tokens, wanted_tokens(tokens, num_scored, probes))
        return cast(Tensor, self.unembed(self.norm(hidden))).float()

    def _run(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        wanted: Sequence[tuple[int, int]],
        *,
        num_layers: int | None = None,
    ) -> Tensor:
        """Append tokens; return the hidden states of some, as :class:`BatchRunner`."""
        rows = [BatchRow(slot, self.lengths[slot], row) for slot, row in zip(slots, tokens, strict=True)]
        hidden = self._runner.run(rows, wanted, num_layers=num_layers)
        for row in rows:
            self.lengths[row.slot] += len(row.tokens)
        return hidden

    def _run_layers(self, batch: ForwardBatch, num_layers: int | None = None) -> Tensor:
        """Return hidden states after all layers or the first ones: ... x d_model."""
        embedded = self.embed_tokens(batch.ids) * self.embed_scale
        hidden: Tensor = embedded + self.embed_positions(batch.positions)
        for layer, cache in list(zip(self.layers, self._caches, strict=True))[:num_layers]:
            hidden = layer(hidden, cache, batch)
        return hidden

    @torch.inference_mode()
    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Tensor:
        """Run tokens through an emptied slot; return cross-attention weights of heads.

        Layers after the last of these heads do not run. The slot is empty afterwards.

        Parameters
        ----------
        heads : as (layer, head).

        Returns
        -------
        float32 weights, heads x tokens x encoder positions, each row summing to 1; on the last head's device.
        """
        queries: dict[int, Tensor] = {}

        def keep_query(layer: int) -> Callable[[nn.Module, object, Tensor], None]:
            return lambda _module, _inputs, query: queries.update({layer: query})

        layers = [cast(DecoderLayer, layer) for layer in self.layers]
        hooks = [layers[i].cross_query.register_forward_hook(keep_query(i)) for i in {i for i, _ in heads}]
        try:
            self.rollback(slot, 0)
            self._run([slot], [tokens], [(0, 0)], num_layers=1 + max(i for i, _ in heads))
        finally:
            self.rollback(slot, 0)
            for hook in hooks:
                hook.remove()
        weights = []
        for i, head in heads:
            query = queries[i].flatten(0, -2)[: len(tokens)]  # the rest is padding
            key = self._caches[i].cross_keys(slot)[head]
            query = query.unflatten(-1, (-1, key.shape[-1]))[:, head]
            scores = query.float() * query.shape[-1] ** -0.5 @ key.float().T
            weights.append(scores.softmax(dim=-1))
        return torch.stack([each.to(weights[-1].device) for each in weights])


def load_decoder_weights(decoder: CachedDecoder, state: Mapping[str, Tensor]) -> None:
    """Load a transformers state dict and fuse its projections.

    Its keys begin with ``model.decoder.``, except for ``proj_out.weight``.
    """

    def fused(prefix: str, names: str) -> dict[str, Tensor]:
        weights = [state[f"{prefix}.{name}_proj.weight"] for name in names]
        # Whisper's key projections have no bias.
        biases = [
            state.get(f"{prefix}.{name}_proj.bias", torch.zeros_like(weights[0][:, 0])) for name in names
        ]
        return {"weight": torch.cat(weights), "bias": torch.cat(biases)}

    def plain(prefix: str) -> dict[str, Tensor]:
        return {"weight": state[f"{prefix}.weight"], "bias": state[f"{prefix}.bias"]}

    parts: dict[str, dict[str, Tensor]] = {
        "embed_tokens": {"weight": state[EMBEDDING]},
        "embed_positions": {"weight": state[f"{DECODER}.embed_positions.weight"]},
        "norm": plain(f"{DECODER}.layer_norm"),
        "unembed": {"weight": state[PROJECTION]},
    }
    for i in range(len(decoder.layers)):
        theirs, ours = f"{DECODER}.layers.{i}", f"layers.{i}"
        parts |= {
            f"{ours}.self_norm": plain(f"{theirs}.self_attn_layer_norm"),
            f"{ours}.self_qkv": fused(f"{theirs}.self_attn", "qkv"),
            f"{ours}.self_out": plain(f"{theirs}.self_attn.out_proj"),
            f"{ours}.cross_norm": plain(f"{theirs}.encoder_attn_layer_norm"),
            f"{ours}.cross_query": fused(f"{theirs}.encoder_attn", "q"),
            f"{ours}.cross_kv": fused(f"{theirs}.encoder_attn", "kv"),
            f"{ours}.cross_out": plain(f"{theirs}.encoder_attn.out_proj"),
            f"{ours}.ffn_norm": plain(f"{theirs}.final_layer_norm"),
            f"{ours}.ffn_in": plain(f"{theirs}.fc1"),
            f"{ours}.ffn_out": plain(f"{theirs}.fc2"),
        }
    flat = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    decoder.load_state_dict(flat, assign=True)
