"""Whisper's decoder over preallocated slots: append tokens to any mix of slots, roll any of them back.

A slot holds the keys and values of one decoding: self-attention for every token fed so far, cross-attention
for the encoded window. Rolling back is moving a position; what lies behind it is overwritten by the next
append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import WhisperConfig
from transformers.activations import ACT2FN


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass over a batch of slots: where each row writes and what it may see.

    Attributes
    ----------
    slots, starts, lengths : per row: the slot, the tokens it holds, the tokens it appends.
    mask : boolean, rows x 1 x width x ``longest``, or ``None`` when every row sees all it reads.
    longest : tokens in the fullest slot after the step.
    slot_range : the slots as a slice where they lie side by side in order, so that reading them copies
        nothing.
    """

    slots: tuple[int, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    mask: Tensor | None
    longest: int = field(init=False)
    slot_range: slice | None = field(init=False)

    def __post_init__(self) -> None:
        # Set here, not computed where they are read: every layer reads them twice.
        ends = map(sum, zip(self.starts, self.lengths, strict=True))
        object.__setattr__(self, "longest", max(ends))
        first, last = self.slots[0], self.slots[0] + len(self.slots)
        is_range = self.slots == tuple(range(first, last))
        object.__setattr__(self, "slot_range", slice(first, last) if is_range else None)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, with fused projections and its slots' caches."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width, hidden = config.d_model, config.decoder_ffn_dim
        self.num_heads = config.decoder_attention_heads
        self.activation = ACT2FN[config.activation_function]
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

    def forward(self, hidden: Tensor, step: Step, self_cache: Tensor, cross_cache: Tensor) -> Tensor:
        """Map ``hidden`` (rows x width x d_model); caches are 2 x slots x heads x positions x head_size."""
        hidden = hidden + self.self_out(self._self_attention(self.self_norm(hidden), step, self_cache))
        hidden = hidden + self.cross_out(self._cross_attention(self.cross_norm(hidden), step, cross_cache))
        expanded: Tensor = self.activation(self.ffn_in(self.ffn_norm(hidden)))
        return hidden + cast(Tensor, self.ffn_out(expanded))

    def _self_attention(self, hidden: Tensor, step: Step, cache: Tensor) -> Tensor:
        qkv = self.split_heads(self.self_qkv(hidden), 3)
        for row, (slot, start, length) in enumerate(zip(step.slots, step.starts, step.lengths, strict=True)):
            cache[:, slot, :, start : start + length] = qkv[1:, row, :, :length]
        where = step.slot_range
        held = cache[:, list(step.slots) if where is None else where, :, : step.longest]
        return self._attend(qkv[0], held, step.mask)

    def _cross_attention(self, hidden: Tensor, step: Step, cache: Tensor) -> Tensor:
        query = self.split_heads(self.cross_query(hidden), 1)[0]
        where = step.slot_range
        if where is not None:
            return self._attend(query, cache[:, where], None)
        # Row by row: gathering scattered slots would copy all their keys and values on every step.
        rows = [
            self._attend(query[i : i + 1], cache[:, slot : slot + 1], None)
            for i, slot in enumerate(step.slots)
        ]
        return torch.cat(rows)

    def _attend(self, query: Tensor, key_value: Tensor, mask: Tensor | None) -> Tensor:
        key, value = key_value.unbind()
        mask = None if mask is None else mask.to(query.device)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return attended.transpose(1, 2).flatten(2)

    def split_heads(self, projected: Tensor, num_parts: int) -> Tensor:
        """Cut rows x width x (parts x d_model) into parts x rows x heads x width x head_size."""
        rows, width, _ = projected.shape
        return projected.view(rows, width, num_parts, self.num_heads, -1).permute(2, 0, 3, 1, 4)


class CachedDecoder(nn.Module):
    """A Whisper decoder with its slots.

    Attributes
    ----------
    lengths : tokens held by each slot; :meth:`append` moves them forward, :meth:`rollback` back.
    """

    def __init__(self, config: WhisperConfig, num_slots: int) -> None:
        super().__init__()
        self.config = config
        self.num_slots = num_slots
        self.max_positions = config.max_target_positions
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.embed_positions = nn.Embedding(config.max_target_positions, config.d_model)
        self.embed_scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.lengths = [0] * num_slots
        self._self_caches: list[Tensor] = []
        self._cross_caches: list[Tensor] = []

    def allocate(self) -> None:
        """Allocate the slots, each layer's where its weights run; once, after the weights are placed."""
        heads = self.config.decoder_attention_heads
        head_size = self.config.d_model // heads
        for layer in self.layers:
            device, dtype = _execution_device(layer), self.embed_tokens.weight.dtype
            for caches, positions in (
                (self._self_caches, self.max_positions),
                (self._cross_caches, self.config.max_source_positions),
            ):
                shape = (2, self.num_slots, heads, positions, head_size)  # keys, values
                caches.append(torch.zeros(shape, device=device, dtype=dtype))

    @property
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""
        caches = self._self_caches + self._cross_caches
        return sum(cache[:, 0].numel() * cache.element_size() for cache in caches)

    @torch.inference_mode()
    def prefill_audio(self, slot: int, encoded: Tensor) -> None:
        """Empty the slot and give it a window: ``encoded`` is positions x d_model from the encoder."""
        for module, cache in zip(self.layers, self._cross_caches, strict=True):
            layer = cast(DecoderLayer, module)
            cache[:, slot] = layer.split_heads(layer.cross_kv(encoded[None].to(cache.device)), 2)[:, 0]
        self.lengths[slot] = 0

    def rollback(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a slot."""
        self.lengths[slot] = min(self.lengths[slot], length)

    @torch.inference_mode()
    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Tensor:
        """Append ragged rows of tokens and give the logits behind the last ``num_scored`` tokens of each.

        Parameters
        ----------
        probes : further tokens whose logits are wanted, as (row, index in the row).

        Returns
        -------
        float32 logits, sum(num_scored) + len(probes) x vocabulary, row after row, then the probes.
        """
        device = _execution_device(self.embed_tokens)
        step = self._step(slots, [len(row) for row in tokens], device)
        width = max(step.lengths)
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in tokens], device=device)
        last = self.max_positions - 1
        places = [[min(start + i, last) for i in range(width)] for start in step.starts]
        hidden = self.embed_tokens(ids) * self.embed_scale + self.embed_positions(
            torch.tensor(places, device=device)
        )
        for layer, self_cache, cross_cache in zip(
            self.layers, self._self_caches, self._cross_caches, strict=True
        ):
            hidden = layer(hidden, step, self_cache, cross_cache)
        for slot, start, length in zip(step.slots, step.starts, step.lengths, strict=True):
            self.lengths[slot] = start + length
        scored = [
            hidden[row, length - num : length]
            for row, (length, num) in enumerate(zip(step.lengths, num_scored, strict=True))
        ]
        scored += [hidden[row, index][None] for row, index in probes]
        return cast(Tensor, self.unembed(self.norm(torch.cat(scored)))).float()

    @torch.inference_mode()
    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Tensor:
        """Feed a slot all over again and tell where some (layer, head) look in the audio.

        Returns
        -------
        float32 weights, heads x tokens x encoder positions, each row summing to 1; on the CPU.
        """
        queries: dict[int, Tensor] = {}

        def note(layer: int) -> Callable[[nn.Module, object, Tensor], None]:
            return lambda _module, _inputs, query: queries.update({layer: query})

        layers = [cast(DecoderLayer, layer) for layer in self.layers]
        hooks = [layers[i].cross_query.register_forward_hook(note(i)) for i in {i for i, _ in heads}]
        try:
            self.rollback(slot, 0)
            self.append([slot], [tokens], [1])
        finally:
            for hook in hooks:
                hook.remove()
        weights = []
        for i, head in heads:
            query = layers[i].split_heads(queries[i], 1)[0, 0, head]
            key = self._cross_caches[i][0, slot, head]
            weights.append((query * query.shape[-1] ** -0.5 @ key.T).float().softmax(dim=-1).cpu())
        return torch.stack(weights)

    def _step(self, slots: Sequence[int], lengths: Sequence[int], device: torch.device) -> Step:
        starts = tuple(self.lengths[slot] for slot in slots)
        plain = Step(tuple(slots), starts, tuple(lengths), None)
        if max(lengths) == 1 and len(set(starts)) == 1:
            return plain
        # Row b, column i is the token at position starts[b] + i: it sees itself and what lies before it.
        position = torch.tensor(starts, device=device)[:, None] + torch.arange(max(lengths), device=device)
        mask = torch.arange(plain.longest, device=device) <= position[:, None, :, None]
        return Step(plain.slots, starts, plain.lengths, mask)


def _execution_device(layer: nn.Module) -> torch.device:
    """Tell where accelerate runs a layer whose weights may be parked elsewhere."""
    for module in layer.modules():
        hook = getattr(module, "_hf_hook", None)
        if getattr(hook, "execution_device", None) is not None:
            return torch.device(hook.execution_device)  # type: ignore[union-attr]
    return next(layer.parameters()).device


def load_decoder_weights(decoder: CachedDecoder, state: dict[str, Tensor]) -> None:
    """Fill the decoder from a transformers state dict (keys below ``model.decoder.``), fusing projections."""

    def fused(prefix: str, names: str) -> dict[str, Tensor]:
        weights = [state[f"{prefix}.{name}_proj.weight"] for name in names]
        # Whisper's key projections have no bias.
        biases = [
            state.get(f"{prefix}.{name}_proj.bias", torch.zeros_like(weights[0][:, 0])) for name in names
        ]
        return {"weight": torch.cat(weights), "bias": torch.cat(biases)}

    def plain(prefix: str) -> dict[str, Tensor]:
        return {"weight": state[f"{prefix}.weight"], "bias": state[f"{prefix}.bias"]}

    root = "model.decoder"
    parts: dict[str, dict[str, Tensor]] = {
        "embed_tokens": {"weight": state[f"{root}.embed_tokens.weight"]},
        "embed_positions": {"weight": state[f"{root}.embed_positions.weight"]},
        "norm": plain(f"{root}.layer_norm"),
        "unembed": {"weight": state["proj_out.weight"]},
    }
    for i in range(len(decoder.layers)):
        theirs, ours = f"{root}.layers.{i}", f"layers.{i}"
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
