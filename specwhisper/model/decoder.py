"""Whisper's decoder over preallocated slots: append tokens to any mix of slots, roll any of them back.

A slot holds the keys and values of one decoding: self-attention for every token fed so far, cross-attention
for the encoded window. Rolling back is moving a position; what lies behind it is overwritten by the next
append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import WhisperConfig
from transformers.activations import ACT2FN

from specwhisper.model.kernels.graphs import CudaGraphs, uncaptured
from specwhisper.model.kernels.linear import Int8Embedding, is_even, pack_linears
from specwhisper.model.kernels.padded_pass import PaddedLayout, PaddedRows
from specwhisper.model.kernels.padded_slots import CROSS_CACHE_DTYPES, PaddedSlots
from specwhisper.model.kernels.ragged_pass import RaggedLayout
from specwhisper.model.kernels.slot_attention import Fed, LayerSlots, Padding

UNPACKED = ("cross_kv",)  # it sees a whole window at once


class Slots(Protocol):
    """One layer's keys and values, and the attention over them: for tokens as the passes lay them out."""

    @property
    def device(self) -> torch.device:
        """Where they lie."""

    @property
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""

    def hear(self, slot: int, key_value: Tensor) -> None:
        """Keep what a window projects to: positions x (2 x d_model)."""

    def heard_keys(self, slot: int) -> Tensor:
        """Give the keys of the window in a slot: heads x positions x head_size."""

    def attend_self(self, qkv: Tensor, forward_pass: Any, /) -> Tensor:
        """Keep the tokens' keys and values, then attend: ... x (3 x d_model) to ... x d_model."""

    def attend_cross(self, query: Tensor, forward_pass: Any, /) -> Tensor:
        """Attend to the windows that the slots have heard: ... x d_model to the same."""


class Passes(Protocol):
    """How tokens are laid out and run through the layers."""

    def run(
        self, rows: Sequence[Fed], wanted: Sequence[tuple[int, int]], *, num_watched: int | None = None
    ) -> Tensor:
        """Append tokens to slots, a row to each, and give the last layer's states of some of them.

        Parameters
        ----------
        wanted : tokens as (row, index in the row).
        num_watched : run only so many layers, and call each, so that hooks see what passes.

        Returns
        -------
        len(wanted) x d_model.
        """


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, with fused projections."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width, hidden = config.d_model, config.decoder_ffn_dim
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

    def forward(self, hidden: Tensor, slots: Slots, forward_pass: Any) -> Tensor:
        """Map the pass's tokens, ... x d_model, to the same."""
        attended = slots.attend_self(self.self_qkv(self.self_norm(hidden)), forward_pass)
        hidden = hidden + self.self_out(attended)
        attended = slots.attend_cross(self.cross_query(self.cross_norm(hidden)), forward_pass)
        hidden = hidden + self.cross_out(attended)
        expanded: Tensor = self.activation(self.ffn_in(self.ffn_norm(hidden)))
        return hidden + cast(Tensor, self.ffn_out(expanded))


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
        self.embed_tokens: nn.Module = nn.Embedding(config.vocab_size, config.d_model)
        self.embed_positions = nn.Embedding(config.max_target_positions, config.d_model)
        self.embed_scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.lengths = [0] * num_slots
        self._layer_slots: list[Slots] = []
        self._padding = Padding()
        self._cache_dtype: torch.dtype | None = None  # that of the weights

    def tie(self) -> None:
        """Let the embedding serve as projection too: one copy for both."""
        self.unembed.weight = cast(nn.Embedding, self.embed_tokens).weight

    def pack(self, *, is_int8: bool, is_draft: bool = False) -> None:
        """Bring the weights into the order and type that a CPU multiplies fastest; once they are loaded.

        Parameters
        ----------
        is_int8 : whether they are rounded; keys and values are bfloat16 then, states between layers float32.
        is_draft : whether a token may get other bits in company than alone, which saves padding.
        """
        pack_linears(self, is_int8=is_int8, leave=UNPACKED)
        if is_int8:
            self.embed_tokens = Int8Embedding(cast(nn.Embedding, self.embed_tokens))
            self._cache_dtype = torch.bfloat16
        if not is_draft and is_even(self, leave=UNPACKED):
            full = Padding(multiple=16).positions(self.config.max_target_positions)
            self._padding = Padding(min_width=4, max_width=32, multiple=16, undivided=192, full=full)

    def allocate(self, *, has_static_shapes: bool = False, cross_cache_dtype: str | None = None) -> None:
        """Allocate the slots, each layer's where its weights run; once, after the weights are placed.

        Parameters
        ----------
        has_static_shapes : whether passes are padded to a few shapes, as GPUs want them; the weights are on
            one device then.
        cross_cache_dtype : of :data:`CROSS_CACHE_DTYPES`, only with static shapes: what is heard is rounded.
        """
        config, dtype = self.config, self._cache_dtype or self.embed_positions.weight.dtype
        device, heads = _execution_device(self.embed_positions), config.decoder_attention_heads
        if has_static_shapes:
            self._passes: Passes = PaddedLayout(
                self._through_padded,
                spare_slot=self.num_slots,
                device=device,
                capture=CudaGraphs(device) if device.type == "cuda" else uncaptured,
            )
        else:
            self._passes = RaggedLayout(
                self._through_layers,
                num_positions=config.max_target_positions,
                padding=self._padding,
                dtype=dtype,
                device=device,
            )
        num_slots = self.num_slots + has_static_shapes  # the last one is padding's
        num_kept = self._padding.positions(config.max_target_positions)
        cross_dtype = CROSS_CACHE_DTYPES[cross_cache_dtype] if cross_cache_dtype else dtype
        kind = PaddedSlots if has_static_shapes else LayerSlots
        for layer in self.layers:
            device = _execution_device(layer)
            caches = (
                torch.zeros(
                    *(2, num_slots, heads, positions, config.d_model // heads), dtype=kept, device=device
                )
                for positions, kept in ((num_kept, dtype), (config.max_source_positions, cross_dtype))
            )
            self._layer_slots.append(kind(*caches))

    def warm_up(self, width: int) -> None:
        """Prepare all passes of up to so many tokens of each slot, where they are prepared at all."""
        if isinstance(self._passes, PaddedLayout):
            self._passes.warm_up(self.num_slots, width)

    @property
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""
        return sum(slots.bytes_per_slot for slots in self._layer_slots)

    @torch.inference_mode()
    def prefill_audio(self, slot: int, encoded: Tensor) -> None:
        """Empty the slot and give it a window: ``encoded`` is positions x d_model from the encoder."""
        for layer, slots in zip(self.layers, self._layer_slots, strict=True):
            slots.hear(slot, cast(DecoderLayer, layer).cross_kv(encoded.to(slots.device)))
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
        probes : further tokens whose logits are wanted, one of each row at most, as (row, index in the row).

        Returns
        -------
        float32 logits, sum(num_scored) + len(probes) x vocabulary, row after row, then the probes.
        """
        ends = [len(row) for row in tokens]
        wanted = [
            (row, index)
            for row, (end, num) in enumerate(zip(ends, num_scored, strict=True))
            for index in range(end - num, end)
        ]
        hidden = self._run(slots, tokens, [*wanted, *probes])
        return cast(Tensor, self.unembed(self.norm(hidden))).float()

    def _run(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        wanted: Sequence[tuple[int, int]],
        *,
        num_watched: int | None = None,
    ) -> Tensor:
        """Append tokens and give the states of some of them, as :class:`Passes` does."""
        rows = [Fed(slot, self.lengths[slot], row) for slot, row in zip(slots, tokens, strict=True)]
        hidden = self._passes.run(rows, wanted, num_watched=num_watched)
        for row in rows:
            self.lengths[row.slot] += len(row.tokens)
        return hidden

    def _through_layers(
        self, ids: Tensor, positions: Tensor, forward_pass: Any, num_layers: int | None = None
    ) -> Tensor:
        """Map tokens of any layout, ..., to the states of the last layer or an earlier one, ... x d_model."""
        hidden: Tensor = self.embed_tokens(ids) * self.embed_scale + self.embed_positions(positions)
        for layer, slots in list(zip(self.layers, self._layer_slots, strict=True))[:num_layers]:
            hidden = layer(hidden, slots, forward_pass)
        return hidden

    def _through_padded(self, rows: PaddedRows, num_layers: int | None = None) -> Tensor:
        positions = rows.positions.clamp(max=self.config.max_target_positions - 1)  # padding's may lie behind
        return self._through_layers(rows.ids, positions, rows, num_layers)

    @torch.inference_mode()
    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Tensor:
        """Feed a slot once more and return where some (layer, head) look in the audio.

        Layers after the last of these are left out: the slot holds nothing afterwards.

        Returns
        -------
        float32 weights, heads x tokens x encoder positions, each row summing to 1; on the last head's device.
        """
        queries: dict[int, Tensor] = {}

        def note(layer: int) -> Callable[[nn.Module, object, Tensor], None]:
            return lambda _module, _inputs, query: queries.update({layer: query})

        layers = [cast(DecoderLayer, layer) for layer in self.layers]
        hooks = [layers[i].cross_query.register_forward_hook(note(i)) for i in {i for i, _ in heads}]
        try:
            self.rollback(slot, 0)
            self._run([slot], [tokens], [(0, 0)], num_watched=1 + max(i for i, _ in heads))
        finally:
            self.rollback(slot, 0)
            for hook in hooks:
                hook.remove()
        weights = []
        for i, head in heads:
            query = queries[i].flatten(0, -2)[: len(tokens)]  # further ones are padding
            key = self._layer_slots[i].heard_keys(slot)[head]
            query = query.unflatten(-1, (-1, key.shape[-1]))[:, head]
            scores = query.float() * query.shape[-1] ** -0.5 @ key.float().T
            weights.append(scores.softmax(dim=-1))
        return torch.stack([each.to(weights[-1].device) for each in weights])


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
