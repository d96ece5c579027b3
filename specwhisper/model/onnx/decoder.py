"""Whisper on ONNX Runtime: its decoder over preallocated slots, and its encoder.

A slot holds the keys and values of one session: self-attention for every token appended so far,
cross-attention for the encoded window. Rollback moves a position back; the next append overwrites what lies
after it. The result of a token has the same bits whatever is decoded beside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from specwhisper.model.arrays import softmax
from specwhisper.model.backend import Encoder, Features, wanted_tokens
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.onnx.graph import bind
from specwhisper.model.onnx.graphs import SPARE_POSITIONS, DecoderGraph, encoder_graph, window_graph

# The runtime multiplies by up to this many queries in one way; more would change the order of its sums.
MAX_QUERIES = 16
MIN_QUERIES = 2  # for a single one it has another way
ROWS_OF_A_BLOCK = 128  # a product's: a single row after the last full block has another sum


MAX_ROWS = 16  # in one forward pass; more rows take several
MAX_BINDINGS = 64  # kept for shapes that return

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a forward pass, and the tokens whose results are wanted.

    Attributes
    ----------
    slots : ascending.
    widths : tokens of each row.
    wanted : tokens whose results are returned, as (row, index in the row).
    """

    slots: tuple[int, ...]
    widths: tuple[int, ...]
    wanted: tuple[tuple[int, int], ...]


def indices_of(shape: BatchShape) -> dict[str, NDArray[Any]]:
    """Return the inputs of :class:`.graphs.DecoderGraph` that a shape determines, by name.

    A slot between two slots of the forward pass has no queries. A lone token stands twice in the batch.
    """
    widths, first_slot = shape.widths, shape.slots[0]
    starts = np.concatenate([[0], np.cumsum(widths)])
    num_slots = shape.slots[-1] + 1 - first_slot
    num_queries = max(map(without_lone_row, widths))
    padded = np.zeros((num_slots, num_queries), np.int64)
    queries_of = np.zeros(num_slots, np.int32)
    unpadded, gathered, rows, num_gathered = [], [], {}, 0
    for i, (slot, width, start) in enumerate(zip(shape.slots, widths, starts, strict=False)):
        index = slot - first_slot
        padded[index, :width] = np.arange(start, start + width)
        padded[index, width:] = start + width - 1
        queries_of[index] = without_lone_row(width)
        unpadded.append(index * num_queries + np.arange(width, dtype=np.int64))
        pieces = _pieces(width)
        rows[f"row_{i}"] = start + np.minimum(pieces, width - 1)
        gathered.append(num_gathered + np.arange(width, dtype=np.int64))
        num_gathered += pieces.size
    wanted = np.array([starts[row] + index for row, index in shape.wanted], np.int64)
    return rows | {
        "padded": padded,
        "unpadded": _repeat_if_lone(np.concatenate(unpadded)),
        "num_queries": queries_of,
        "num_rows": np.array([len(widths)], np.int64),
        "gathered": _repeat_if_lone(np.concatenate(gathered)),
        "wanted": _repeat_if_lone(wanted),
    }


def _pieces(width: int) -> NDArray[np.int64]:
    """Return a row's tokens in pieces of equal length, the last ones beyond the row: pieces x queries."""
    length = min(max(width, MIN_QUERIES), MAX_QUERIES)
    num_pieces = -(-width // length)
    return np.arange(num_pieces * length, dtype=np.int64).reshape(num_pieces, length)


def without_lone_row(num_rows: int) -> int:
    """Return a number of rows that leaves no single one after the last full block."""
    return num_rows + (num_rows % ROWS_OF_A_BLOCK == 1)


def _repeat_if_lone(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Repeat the last index if it would be alone in its block."""
    return np.pad(indices, (0, without_lone_row(len(indices)) - len(indices)), mode="edge")


@dataclass(frozen=True, slots=True)
class BoundArrays:
    """Arrays that a forward pass of one shape reads and writes.

    Some are filled before each.
    """

    binding: onnxruntime.IOBinding
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    last: NDArray[np.int32]
    total: NDArray[np.int32]
    outputs: dict[str, Floats]
    kept: tuple[NDArray[np.generic], ...]  # bound by address, so they must live


class SlotDecoder:
    """A :class:`specwhisper.model.backend.Backend`: a decoder with its slots, and an encoder.

    In int8, weights and activations are rounded; keys and values stay float32.

    ``encoder``: the checkpoint's; without it, nothing can be encoded.

    Attributes
    ----------
    lengths : tokens in each slot; :meth:`append` adds to them, :meth:`rollback` takes from them.
    """

    max_windows = 1  # threads of the runtime encode a window together
    takes_short_windows = True
    device = None

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_slots: int,
        *,
        num_threads: int,
        encoder: Encoder | None = None,
    ) -> None:
        self._encoder = encoder
        self.lengths = [0] * num_slots
        self._sizes = sizes = checkpoint.sizes
        self._num_rows = min(num_slots, MAX_ROWS)
        heads, head_size = sizes.decoder_attention_heads, sizes.d_model // sizes.decoder_attention_heads
        layers = range(sizes.decoder_layers)
        num_positions = sizes.max_target_positions + SPARE_POSITIONS
        self._self_keys, self._self_values = (
            [np.zeros((num_slots, heads, num_positions, head_size), np.float32) for _ in layers] for _ in "kv"
        )
        # A window's keys and values lie together, so that shorter windows take less room and time.
        size = heads * sizes.max_source_positions * head_size
        self._cross_keys, self._cross_values = (
            [np.zeros((num_slots, size), np.float32) for _ in layers] for _ in "kv"
        )
        self._window_lengths = [sizes.max_source_positions] * num_slots
        self._window_session = window_graph(sizes, checkpoint.weights).open(num_threads)
        is_int8 = checkpoint.dtype == "int8"
        graph = DecoderGraph(sizes, checkpoint.weights, num_rows=self._num_rows, is_int8=is_int8)
        queried_layers = {layer for layer, _ in checkpoint.alignment_heads}
        self._session = graph.build(queried_layers).open(num_threads)
        self._bound_arrays: OrderedDict[object, BoundArrays] = OrderedDict()
        self._results: dict[str, Floats] = {}  # logits, and queries of layers

    def warm_up(self) -> None:
        """Do nothing: no shape needs preparation."""

    def inference(self) -> AbstractContextManager[object]:
        return nullcontext()

    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        assert self._encoder is not None
        for slot, features in windows:
            (encoded,) = self._encoder([features])
            self.prefill_audio(slot, encoded)

    def length(self, slot: int) -> int:
        return self.lengths[slot]

    @property
    def bytes_per_slot(self) -> int:
        caches = (*self._self_keys, *self._self_values, *self._cross_keys, *self._cross_values)
        return sum(cache[0].nbytes for cache in caches)

    def prefill_audio(self, slot: int, encoded: Floats) -> None:
        """Empty a slot and write its cross-attention cache.

        ``encoded``: the encoder's output, positions x d_model; at most as many positions as the model has.
        """
        self._window_lengths[slot] = len(encoded)
        binding = self._window_session.io_binding()
        bind(binding, inputs={"encoded": encoded}, outputs=dict(self._window(slot)))
        self._window_session.run_with_iobinding(binding)
        self.lengths[slot] = 0

    def rollback(self, slot: int, length: int) -> None:
        self.lengths[slot] = min(self.lengths[slot], length)

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Floats:
        wanted = wanted_tokens(tokens, num_scored, probes)
        order = sorted(range(len(slots)), key=slots.__getitem__)
        size = self._rows_together(slots, max(map(len, tokens)))
        parts = [order[i : i + size] for i in range(0, len(order), size)]
        if len(parts) == 1:
            return self._run(slots, tokens, order, wanted)["logits"][: len(wanted)]
        logits = np.empty((len(wanted), self._sizes.vocab_size), np.float32)
        for part in parts:
            indices = [i for i, (row, _) in enumerate(wanted) if row in part]
            of_part = [wanted[i] for i in indices]
            logits[indices] = self._run(slots, tokens, part, of_part)["logits"][: len(indices)]
        return logits

    def _rows_together(self, slots: Sequence[int], width: int) -> int:
        """Return how many rows one forward pass may take: one if a slot has no room for the longest row."""
        room = self._sizes.max_target_positions + SPARE_POSITIONS - without_lone_row(width)
        return self._num_rows if all(self.lengths[slot] <= room for slot in slots) else 1

    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Floats:
        """Return cross-attention weights of heads, in layers that have some of the checkpoint's."""
        self.rollback(slot, 0)
        try:
            outputs = self._run([slot], [tokens], [0], [(0, 0)], layers=tuple({layer for layer, _ in heads}))
        finally:
            self.rollback(slot, 0)
        keys = dict(self._window(slot))
        size = self._sizes.d_model // self._sizes.decoder_attention_heads
        weights = []
        for layer, head in heads:
            query = outputs[f"query_{layer}"][: len(tokens), head * size : (head + 1) * size]
            weights.append(softmax(query @ keys[f"key_{layer}"][0, head].T))
        return np.stack(weights)

    def _run(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        order: Sequence[int],
        wanted: Sequence[tuple[int, int]],
        layers: tuple[int, ...] = (),
    ) -> dict[str, Floats]:
        """Append some of the rows, ordered by slot; return logits, and queries of layers, by name.

        Parameters
        ----------
        order : indices of these rows.
        wanted : tokens whose logits are returned, as (row, index in the row).
        """
        rank = {row: i for i, row in enumerate(order)}
        shape = BatchShape(
            tuple(slots[row] for row in order),
            tuple(len(tokens[row]) for row in order),
            tuple((rank[row], index) for row, index in wanted),
        )
        prepared = self._prepared(shape, layers)
        ids = [token for row in order for token in tokens[row]]
        prepared.ids[: len(ids)] = ids
        prepared.ids[len(ids) :] = ids[-1]
        first, start, longest = shape.slots[0], 0, 1
        for slot, width in zip(shape.slots, shape.widths, strict=True):
            held = self.lengths[slot]
            prepared.positions[start : start + width] = range(held, held + width)
            start += width
            last = held + without_lone_row(width) - 1
            prepared.last[slot - first] = last
            longest = max(longest, last + 1)
        prepared.positions[start:] = prepared.positions[start - 1]
        prepared.total[0] = longest
        self._session.run_with_iobinding(prepared.binding)
        for slot, width in zip(shape.slots, shape.widths, strict=True):
            self.lengths[slot] += width
        return prepared.outputs

    def _prepared(self, shape: BatchShape, layers: tuple[int, ...]) -> BoundArrays:
        """Return the arrays of a shape, kept from an earlier forward pass or new."""
        key = (shape, layers, tuple(self._window_lengths[slot] for slot in shape.slots))
        found = self._bound_arrays.pop(key, None) or self._bound(shape, layers)
        self._bound_arrays[key] = found
        if len(self._bound_arrays) > MAX_BINDINGS:
            self._bound_arrays.popitem(last=False)
        return found

    def _bound(self, shape: BatchShape, layers: tuple[int, ...]) -> BoundArrays:
        inputs, num_tokens = indices_of(shape), without_lone_row(sum(shape.widths))
        ids, positions = np.zeros(num_tokens, np.int64), np.zeros(num_tokens, np.int64)
        last, total = np.zeros(len(inputs["num_queries"]), np.int32), np.zeros(1, np.int32)
        inputs |= {"ids": ids, "positions": positions, "last": last, "total": total}
        outputs: dict[str, NDArray[Any]] = {}
        span = slice(shape.slots[0], shape.slots[-1] + 1)
        for layer in range(self._sizes.decoder_layers):
            for part, cache in (("key", self._self_keys), ("value", self._self_values)):
                inputs[f"self_{part}_{layer}"] = outputs[f"new_{part}_{layer}"] = cache[layer][span]
        for row in range(self._num_rows):
            is_used = row < len(shape.slots)
            inputs.setdefault(f"row_{row}", np.zeros((1, MIN_QUERIES), np.int64))
            for name, array in self._window(shape.slots[row if is_used else 0]):
                inputs[f"cross_{name}_{row}"] = array
        results = {"logits": self._room("logits", len(inputs["wanted"]), self._sizes.vocab_size)}
        for layer in layers:
            results[f"query_{layer}"] = self._room(f"query_{layer}", num_tokens, self._sizes.d_model)
        binding = self._session.io_binding()
        bind(binding, inputs=inputs, outputs=outputs | results)
        kept = (*inputs.values(), *outputs.values())
        return BoundArrays(binding, ids, positions, last, total, results, kept)

    def _room(self, name: str, num_rows: int, width: int) -> Floats:
        """Return rows of a result's memory: all shapes share it, each overwrites the last one's."""
        held = self._results.get(name)
        if held is None or len(held) < num_rows:
            num_held = 0 if held is None else len(held)
            held = self._results[name] = np.empty((max(num_rows, 2 * num_held), width), np.float32)
            self._bound_arrays.clear()  # they write into the smaller one
        return held[:num_rows]

    def _window(self, slot: int) -> Iterator[tuple[str, Floats]]:
        """Yield the keys and values of the window in a slot, by part and layer.

        Keys are 1 x heads x window x head size; values are transposed.
        """
        heads, length = self._sizes.decoder_attention_heads, self._window_lengths[slot]
        head_size = self._sizes.d_model // heads
        for layer in range(self._sizes.decoder_layers):
            for part, cache, shape in (
                ("key", self._cross_keys, (1, heads, length, head_size)),
                ("value", self._cross_values, (1, heads, head_size, length)),
            ):
                yield f"{part}_{layer}", cache[layer][slot, : length * self._sizes.d_model].reshape(shape)


class OnnxEncoder:
    """The encoder of a checkpoint; a :class:`specwhisper.model.backend.Encoder`."""

    max_windows = 1  # threads of the runtime encode a window together

    def __init__(self, checkpoint: Checkpoint, num_threads: int) -> None:
        # In int8, weights and activations of the layers are rounded.
        graph = encoder_graph(checkpoint.sizes, checkpoint.weights, is_int8=checkpoint.dtype == "int8")
        self._session = graph.open(num_threads)
        # Free what a window needs after each: 30 MB for tiny, which take about as long as a decoder step.
        self._options = onnxruntime.RunOptions()
        self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def __call__(self, windows: Sequence[Features]) -> Sequence[NDArray[np.float32]]:
        """Encode windows one after the other.

        Each is mel bins x frames, and becomes (frames / 2) x d_model.
        """
        run, options = self._session.run, self._options
        return [run(["encoded"], {"features": features[None]}, options)[0] for features in windows]
