"""Whisper's decoder over preallocated slots: append tokens, roll back.

A slot holds the keys and values of one session: self-attention for every token appended so far,
cross-attention for the encoded window. Rollback moves a position back; the next append overwrites what lies
after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from specwhisper.model.arrays import Array
from specwhisper.model.backend import Encoder, Features, wanted_tokens
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import DECODER, EMBEDDING, PROJECTION
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.operations import (
    BatchRow,
    LayerCache,
    PlainOperations,
    logits_device,
    to_device,
)
from specwhisper.model.pytorch.packed import (
    CAPTURING,
    TOKENS,
    CudaGraphs,
    PackedBatch,
    PackedInputs,
    PackedRunner,
)
from specwhisper.model.pytorch.ragged import RaggedBatch
from specwhisper.model.pytorch.self_test import operations_for


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, with fused projections."""

    def __init__(self, sizes: ModelSizes) -> None:
        super().__init__()
        width, hidden = sizes.d_model, sizes.decoder_ffn_dim
        is_gelu = sizes.activation_function == "gelu"  # the exact one, as in every published checkpoint
        self.activation: nn.Module | None = None if is_gelu else ACT2FN[sizes.activation_function]
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

    def forward(self, hidden: Tensor, cache: LayerCache, batch: PackedBatch | RaggedBatch) -> Tensor:
        """Map the tokens' hidden states to the next layer's: tokens x d_model."""
        operations = batch.operations
        qkv = operations.norm_linear(hidden, self.self_norm, self.self_qkv)
        hidden = operations.linear_add(batch.attend_self(cache, qkv), self.self_out, hidden)
        query = operations.norm_linear(hidden, self.cross_norm, self.cross_query)
        hidden = operations.linear_add(batch.attend_cross(cache, query), self.cross_out, hidden)
        is_gelu = self.activation is None
        expanded = operations.norm_linear(hidden, self.ffn_norm, self.ffn_in, gelu=is_gelu)
        if self.activation is not None:
            expanded = self.activation(expanded)
        return operations.linear_add(expanded, self.ffn_out, hidden)


class CachedDecoder(nn.Module):
    """A :class:`specwhisper.model.backend.Backend`: a decoder with its slots, and an encoder.

    Parameters
    ----------
    encoder : the checkpoint's, on the same device; another model may share it.

    Attributes
    ----------
    lengths : tokens in each slot; :meth:`append` adds to them, :meth:`rollback` takes from them.
    """

    takes_short_windows = False

    def __init__(self, sizes: ModelSizes, num_slots: int, encoder: Encoder | None = None) -> None:
        super().__init__()
        self._encoder = encoder
        self.max_windows = 1 if encoder is None else encoder.max_windows
        self.device: torch.device | None = None
        self.sizes = sizes
        self.num_slots = num_slots
        self.embed_tokens: nn.Module = nn.Embedding(sizes.vocab_size, sizes.d_model)
        self.embed_positions = nn.Embedding(sizes.max_target_positions, sizes.d_model)
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.decoder_layers))
        self.norm = nn.LayerNorm(sizes.d_model)
        self.unembed = nn.Linear(sizes.d_model, sizes.vocab_size, bias=False)
        self.lengths = [0] * num_slots
        self._caches: list[LayerCache] = []
        self._causal: Tensor  # added to scores: 0, or -inf for later positions
        self._runner: PackedRunner | None = None
        self._operations = PlainOperations()
        self._logits: Tensor

    def allocate(self, device: torch.device, *, has_static_shapes: bool = False) -> None:
        """Allocate each layer's cache on the layer's device, once weights are placed.

        Parameters
        ----------
        device : where the whole model is, or with a device map what is offloaded runs.
        has_static_shapes : pad batches to a few shapes, as GPUs need it; all weights are on one device then.
        """
        self.device = logits_device(device)
        sizes, dtype = self.sizes, self.unembed.weight.dtype
        num_slots = self.num_slots + has_static_shapes  # the last one is for padding
        heads = sizes.decoder_attention_heads
        for layer in self.layers:
            device = execution_device(layer)
            shapes = (
                (2, num_slots, heads, num_positions, sizes.d_model // heads)
                for num_positions in (sizes.max_target_positions, sizes.max_source_positions)
            )
            self._caches.append(LayerCache(*(torch.zeros(s, dtype=dtype, device=device) for s in shapes)))
        device = execution_device(self.embed_positions)
        square = sizes.max_target_positions, sizes.max_target_positions
        self._causal = torch.full(square, -torch.inf, dtype=dtype, device=device).triu(1)
        if not has_static_shapes:
            return
        is_gpu = device.type == "cuda"
        if is_gpu:
            self._operations = operations_for(sizes, dtype, device)
        # One for all graphs: each would keep its own alive, and they are large.
        self._logits = torch.empty((TOKENS[-1], sizes.vocab_size), dtype=torch.float32, device=device)
        capture = {"capture": CudaGraphs(device)} if is_gpu else {}
        self._runner = PackedRunner(self._step, spare_slot=self.num_slots, device=device, **capture)

    def warm_up(self) -> None:
        """Capture all shapes, if they are static; a prompt must not wait for its own."""
        if self._runner is not None:
            self._runner.warm_up(self.num_slots, self.sizes.max_target_positions)

    @property
    def bytes_per_slot(self) -> int:
        return sum(cache.bytes_per_slot for cache in self._caches)

    def inference(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    @torch.inference_mode()
    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        assert self._encoder is not None
        with CAPTURING if self.device is not None else nullcontext():
            encoded = self._encoder([features for _, features in windows])
            self.prefill_audio([slot for slot, _ in windows], torch.stack(list(encoded)))
        if self.device is not None:
            torch.cuda.current_stream(self.device).synchronize()  # else the next forward pass waits for it

    @torch.inference_mode()
    def prefill_audio(self, slots: Sequence[int], encoded: Tensor) -> None:
        """Empty slots and write their cross-attention caches.

        ``encoded``: the encoder's outputs, windows x positions x d_model.
        """
        on_device: dict[torch.device, Tensor] = {}
        for layer, cache in zip(self.layers, self._caches, strict=True):
            if cache.device not in on_device:
                on_device[cache.device] = to_device(list(slots), cache.device)
            key_value = cast(DecoderLayer, layer).cross_kv(encoded.to(cache.device))
            cache.write_cross_kv(on_device[cache.device], key_value)
        for slot in slots:
            self.lengths[slot] = 0

    def length(self, slot: int) -> int:
        return self.lengths[slot]

    def rollback(self, slot: int, length: int) -> None:
        self.lengths[slot] = min(self.lengths[slot], length)

    def _placed(self, values: Tensor) -> Array:
        return values.numpy(force=True) if self.device is None else values.to(self.device)

    @torch.inference_mode()
    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Array:
        order = sorted(range(len(slots)), key=slots.__getitem__)
        rows = [BatchRow(slots[row], self.lengths[slots[row]], tokens[row]) for row in order]
        firsts = list(accumulate((len(row.tokens) for row in rows), initial=0))
        first_of = dict(zip(order, firsts, strict=False))
        wanted = [first_of[row] + index for row, index in wanted_tokens(tokens, num_scored, probes)]
        if self._runner is None:
            hidden = self.run_layers(RaggedBatch.of(rows, self._causal))
            self._extend(rows)
            hidden = hidden.index_select(0, to_device(wanted, hidden.device))
            return self._placed(self._operations.norm_linear(hidden, self.norm, self.unembed).float())
        logits = []
        for part, of_part in self._runner.run(rows):
            self._extend(rows[part.start : part.stop])
            logits.append(of_part[: firsts[part.stop] - firsts[part.start]].clone())
        return self._placed(torch.cat(logits).index_select(0, to_device(wanted, self._logits.device)))

    def _extend(self, rows: Sequence[BatchRow]) -> None:
        for row in rows:
            self.lengths[row.slot] += len(row.tokens)

    def run_layers(self, batch: PackedBatch | RaggedBatch, num_layers: int | None = None) -> Tensor:
        """Return hidden states after all layers or the first ones: tokens x d_model."""
        hidden: Tensor = self.embed_tokens(batch.ids) + self.embed_positions(batch.positions)
        for layer, cache in list(zip(self.layers, self._caches, strict=True))[:num_layers]:
            hidden = layer(hidden, cache, batch)
        return hidden

    def _step(self, inputs: PackedInputs) -> Tensor:
        """Run a whole forward pass, from token ids to logits: what a graph captures."""
        hidden = self.run_layers(PackedBatch(inputs, self._operations))
        logits = self._logits[: len(inputs.ids)]
        return self._operations.norm_linear(hidden, self.norm, self.unembed, out=logits)

    @torch.inference_mode()
    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Array:
        """Return cross-attention weights of heads; layers after the last of these do not run."""
        queries: dict[int, Tensor] = {}

        def keep_query(layer: int) -> Callable[[nn.Module, object, Tensor], None]:
            return lambda _module, _inputs, query: queries.update({layer: query})

        layers = [cast(DecoderLayer, layer) for layer in self.layers]
        hooks = [layers[i].cross_query.register_forward_hook(keep_query(i)) for i in {i for i, _ in heads}]
        try:
            batch = RaggedBatch.of([BatchRow(slot, 0, tokens)], self._causal)
            self.run_layers(batch, 1 + max(i for i, _ in heads))
        finally:
            self.rollback(slot, 0)
            for hook in hooks:
                hook.remove()
        weights = []
        for i, head in heads:
            key = self._caches[i].cross_cache[0, slot, head]
            query = queries[i].unflatten(-1, (-1, key.shape[-1]))[:, head]
            scores = query.float() * query.shape[-1] ** -0.5 @ key.float().T
            weights.append(scores.softmax(dim=-1))
        return self._placed(torch.stack([each.to(weights[-1].device) for each in weights]))


def load_decoder_weights(decoder: CachedDecoder, read: Callable[[str], Tensor], *, is_tied: bool) -> None:
    decoder.load_state_dict(dict(decoder_weights(decoder, read, is_tied=is_tied)), assign=True)
    if is_tied:
        decoder.unembed.weight = cast(nn.Embedding, decoder.embed_tokens).weight


def decoder_weights(
    decoder: CachedDecoder, read: Callable[[str], Tensor], *, is_tied: bool
) -> Iterator[tuple[str, Tensor]]:
    """Yield a decoder's weights, fused, each when its turn comes.

    Parameters
    ----------
    read : returns a weight by transformers' name.
    is_tied : whether embedding and projection to logits are equal.
    """
    embedding = read(EMBEDDING)

    def fused(prefix: str, names: str) -> dict[str, Tensor]:
        weights = [read(f"{prefix}.{name}_proj.weight") for name in names]
        biases = [  # Whisper's key projections have none
            torch.zeros_like(weights[0][:, 0]) if name == "k" else read(f"{prefix}.{name}_proj.bias")
            for name in names
        ]
        return {"weight": torch.cat(weights), "bias": torch.cat(biases)}

    def plain(prefix: str) -> dict[str, Tensor]:
        return {"weight": read(f"{prefix}.weight"), "bias": read(f"{prefix}.bias")}

    def parts() -> Iterator[tuple[str, dict[str, Tensor]]]:
        yield "embed_tokens", {"weight": embedding}
        yield "embed_positions", {"weight": read(f"{DECODER}.embed_positions.weight")}
        yield "norm", plain(f"{DECODER}.layer_norm")
        yield "unembed", {"weight": embedding if is_tied else read(PROJECTION)}
        for i in range(len(decoder.layers)):
            theirs, ours = f"{DECODER}.layers.{i}", f"layers.{i}"
            yield f"{ours}.self_norm", plain(f"{theirs}.self_attn_layer_norm")
            yield f"{ours}.self_qkv", fused(f"{theirs}.self_attn", "qkv")
            yield f"{ours}.self_out", plain(f"{theirs}.self_attn.out_proj")
            yield f"{ours}.cross_norm", plain(f"{theirs}.encoder_attn_layer_norm")
            yield f"{ours}.cross_query", fused(f"{theirs}.encoder_attn", "q")
            yield f"{ours}.cross_kv", fused(f"{theirs}.encoder_attn", "kv")
            yield f"{ours}.cross_out", plain(f"{theirs}.encoder_attn.out_proj")
            yield f"{ours}.ffn_norm", plain(f"{theirs}.final_layer_norm")
            yield f"{ours}.ffn_in", plain(f"{theirs}.fc1")
            yield f"{ours}.ffn_out", plain(f"{theirs}.fc2")

    for part, tensors in parts():
        for name, tensor in tensors.items():
            yield f"{part}.{name}", tensor
