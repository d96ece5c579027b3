"""The graphs of Whisper's encoder, and of its decoder over slots.

In the decoder, tokens of all rows lie one after the other, so that linear layers compute nothing for padding.
Self-attention takes the rows side by side and reads and writes the slots in place. Cross-attention is a
branch for each row, since each reads another slot; branches that a forward pass does not need are not run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import DECODER, EMBEDDING, ENCODER, PROJECTION
from specwhisper.model.onnx.graph import Graph, Layers, round_rows

# Positions of a slot after the last one of the model: a lone token is fed as two, the second is overwritten.
SPARE_POSITIONS = 2


class DecoderGraph:
    """Builds the graph of a forward pass of up to ``num_rows`` rows.

    Inputs
    ------
    ids, positions : every token's id and its position in its slot: tokens.
    padded : the tokens as self-attention takes them: slots x queries.
    unpadded : where each token's result is among those, flattened: tokens.
    last, num_queries, total : for each slot the last position that it holds after this pass, and its queries;
        the number of positions of the longest slot.
    self_key_L, self_value_L : those of layer L: slots x heads x positions x head size, written in place.
    num_rows : rows of this pass.
    row_R : the tokens of row R, as cross-attention takes them: pieces x queries.
    cross_key_L_R, cross_value_L_R : those of layer L for row R: 1 x heads x window x head size, and
        its transpose.
    gathered : where each token's result is among those of all rows: tokens.
    wanted : the tokens whose logits are returned.
    """

    def __init__(
        self,
        sizes: ModelSizes,
        weights: Mapping[str, NDArray[np.float32]],
        *,
        num_rows: int,
        is_int8: bool,
    ) -> None:
        self._sizes = sizes
        self._embedding = weights[EMBEDDING]
        self._num_rows = num_rows
        self._is_int8 = is_int8
        self._graph = Graph()
        self._layers = Layers(self._graph, weights, is_int8=is_int8)
        self._head_size = sizes.d_model // sizes.decoder_attention_heads

    def build(self, queried_layers: Collection[int] = ()) -> Graph:
        """Return the graph.

        Its outputs are ``logits``, wanted x vocabulary; ``new_key_L`` and ``new_value_L``, which are bound to
        the slots; and of some layers the cross-attention's queries ``query_L``, tokens x d_model, scaled by
        the inverse root of the head size.
        """
        graph, sizes = self._graph, self._sizes
        self._declare_inputs()
        positions = self._layers.weight(f"{DECODER}.embed_positions.weight")
        hidden = graph.node("Add", self._embedded(), graph.node("Gather", positions, "positions"))
        for layer in range(sizes.decoder_layers):
            hidden = self._layer(layer, hidden, is_queried=layer in queried_layers)
        hidden = self._layers.norm(graph.node("Gather", hidden, "wanted"), f"{DECODER}.layer_norm")
        logits = self._layers.linear(hidden, PROJECTION.removesuffix(".weight"))
        graph.output("logits", logits, np.float32, ("wanted", sizes.vocab_size))
        return graph

    def _declare_inputs(self) -> None:
        graph, rows = self._graph, range(self._num_rows)
        for name in ("ids", "positions", "unpadded", "gathered"):
            graph.input(name, np.int64, ("tokens",))
        graph.input("padded", np.int64, ("slots", "queries"))
        for name in ("last", "num_queries"):
            graph.input(name, np.int32, ("slots",))
        graph.input("total", np.int32, (1,))
        graph.input("num_rows", np.int64, (1,))
        graph.input("wanted", np.int64, ("wanted",))
        for row in rows:
            graph.input(f"row_{row}", np.int64, (f"pieces_{row}", f"queries_{row}"))
        self._has_row = [graph.node("Greater", "num_rows", graph.constant([row])) for row in rows]

    def _embedded(self) -> str:
        graph, table = self._graph, self._embedding
        if self._is_int8:
            rounded, scales = round_rows(table)
            rows = graph.cast(graph.node("Gather", graph.weight(rounded), "ids"), np.float32)
            return graph.node("Mul", rows, graph.node("Gather", graph.weight(scales[:, None]), "ids"))
        return graph.node("Gather", graph.weight(table), "ids")

    def _layer(self, layer: int, hidden: str, *, is_queried: bool) -> str:
        graph, layers, name = self._graph, self._layers, f"{DECODER}.layers.{layer}"
        own, cross = f"{name}.self_attn", f"{name}.encoder_attn"
        qkv = layers.projected(layers.norm(hidden, f"{own}_layer_norm"), own, "qkv")
        attended = self._attend_self(layer, qkv)
        hidden = graph.node("Add", hidden, layers.linear(attended, f"{own}.out_proj"))
        normed = layers.norm(hidden, f"{cross}_layer_norm")
        query = layers.projected(normed, cross, "q", scale=self._head_size**-0.5)
        if is_queried:
            graph.output(f"query_{layer}", query, np.float32, ("tokens", self._sizes.d_model))
        attended = graph.node("Gather", self._attend_rows(graph, layer, query, 0), "gathered")
        hidden = graph.node("Add", hidden, layers.linear(attended, f"{cross}.out_proj"))
        normed = layers.norm(hidden, f"{name}.final_layer_norm")
        expanded = graph.contrib("Gelu", layers.linear(normed, f"{name}.fc1"))
        return graph.node("Add", hidden, layers.linear(expanded, f"{name}.fc2"))

    def _attend_self(self, layer: int, qkv: str) -> str:
        """Write keys and values into the slots and attend: tokens x (3 x d_model) to tokens x d_model."""
        graph, sizes = self._graph, self._sizes
        num_heads = sizes.decoder_attention_heads
        num_positions = sizes.max_target_positions + SPARE_POSITIONS
        shape = ("slots", num_heads, num_positions, self._head_size)
        for part in ("key", "value"):
            graph.input(f"self_{part}_{layer}", np.float32, shape)
        names = [f"attended_{layer}", f"new_key_{layer}", f"new_value_{layer}"]
        caches = (f"self_key_{layer}", f"self_value_{layer}")
        graph.contrib(
            "GroupQueryAttention",
            graph.node("Gather", qkv, "padded"),  # query, key and value are one input
            *("", "", *caches, "last", "total"),
            *([""] * 9),  # not used
            "num_queries",
            outputs=names,
            num_heads=num_heads,
            kv_num_heads=num_heads,
        )
        for name in names[1:]:
            graph.output(name, name, np.float32, shape)
        return graph.node("Gather", graph.reshape(names[0], -1, sizes.d_model), "unpadded")

    def _attend_rows(self, graph: Graph, layer: int, query: str, row: int) -> str:
        """Attend from one row's tokens to its window and, in a branch, from the rows after it."""
        of_row = self._attend_row(graph, layer, query, row)
        if row + 1 == self._num_rows:
            return of_row
        of_others = graph.either(
            self._has_row[row + 1],
            lambda branch: self._attend_rows(branch, layer, query, row + 1),
            lambda branch: branch.constant(np.zeros((0, self._sizes.d_model)), np.float32),
        )
        return graph.node("Concat", of_row, of_others, axis=0)

    def _attend_row(self, graph: Graph, layer: int, query: str, row: int) -> str:
        """Attend from a row's tokens to its window: pieces x queries to as many rows of d_model.

        The window is on the left of both products: it is read as it lies, and the few queries are packed.
        """
        sizes, head_size = self._sizes, self._head_size
        num_heads = sizes.decoder_attention_heads
        window = f"window_{row}"
        key = self._graph.input(f"cross_key_{layer}_{row}", np.float32, (1, num_heads, window, head_size))
        value = self._graph.input(f"cross_value_{layer}_{row}", np.float32, (1, num_heads, head_size, window))
        queries = graph.reshape(graph.node("Gather", query, f"row_{row}"), 0, 0, num_heads, head_size)
        scores = graph.node("MatMul", key, graph.transpose(queries, 0, 2, 3, 1))
        weights = graph.node("Softmax", scores, axis=2)
        attended = graph.node("MatMul", value, weights)  # pieces x heads x head size x queries
        return graph.reshape(graph.transpose(attended, 0, 3, 1, 2), -1, sizes.d_model)


def window_graph(sizes: ModelSizes, weights: Mapping[str, NDArray[np.float32]]) -> Graph:
    """Return a graph from ``encoded``, a window, to every layer's keys and values.

    Outputs are ``key_L``, 1 x heads x window x head size, and ``value_L``, transposed.
    """
    graph = Graph()
    layers = Layers(graph, weights, is_int8=False)
    heads, head_size = sizes.decoder_attention_heads, sizes.d_model // sizes.decoder_attention_heads
    graph.input("encoded", np.float32, ("window", sizes.d_model))
    for layer in range(sizes.decoder_layers):
        for part, order, shape in (
            ("key", (0, 2, 1, 3), (1, heads, "window", head_size)),
            ("value", (0, 2, 3, 1), (1, heads, head_size, "window")),
        ):
            projected = layers.projected("encoded", f"{DECODER}.layers.{layer}.encoder_attn", part[0])
            projected = graph.reshape(projected, 1, -1, heads, head_size)
            graph.output(f"{part}_{layer}", graph.transpose(projected, *order), np.float32, shape)
    return graph


FRAMES_PER_POSITION = 2  # the second convolution halves the frames


def encoder_graph(sizes: ModelSizes, weights: Mapping[str, NDArray[np.float32]], *, is_int8: bool) -> Graph:
    """Return a graph from ``features`` to ``encoded``."""
    graph = Graph()
    layers = Layers(graph, weights, is_int8=is_int8)
    hidden = graph.input("features", np.float32, (1, sizes.num_mel_bins, "frames"))
    for name, stride in (("conv1", 1), ("conv2", FRAMES_PER_POSITION)):
        weight, bias = (layers.weight(f"{ENCODER}.{name}.{part}") for part in ("weight", "bias"))
        convolved = graph.node("Conv", hidden, weight, bias, kernel_shape=[3], pads=[1, 1], strides=[stride])
        hidden = graph.contrib("Gelu", convolved)
    hidden = graph.reshape(graph.transpose(hidden, 0, 2, 1), -1, sizes.d_model)
    num_positions = graph.node("Shape", hidden, start=0, end=1)
    positions = layers.weight(f"{ENCODER}.embed_positions.weight")
    positions = graph.node("Slice", positions, graph.constant([0]), num_positions)
    hidden = graph.node("Add", hidden, positions)
    for name in (f"{ENCODER}.layers.{layer}" for layer in range(sizes.encoder_layers)):
        own = f"{name}.self_attn"
        qkv = layers.projected(layers.norm(hidden, f"{own}_layer_norm"), own, "qkv")
        attended = _attend_everywhere(graph, qkv, sizes)
        hidden = graph.node("Add", hidden, layers.linear(attended, f"{own}.out_proj"))
        expanded = layers.linear(layers.norm(hidden, f"{name}.final_layer_norm"), f"{name}.fc1")
        hidden = graph.node("Add", hidden, layers.linear(graph.contrib("Gelu", expanded), f"{name}.fc2"))
    encoded = layers.norm(hidden, f"{ENCODER}.layer_norm")
    graph.output("encoded", encoded, np.float32, ("positions", sizes.d_model))
    return graph


def _attend_everywhere(graph: Graph, qkv: str, sizes: ModelSizes) -> str:
    """Attend from every position to every other: positions x (3 x d_model) to positions x d_model."""
    num_heads = sizes.encoder_attention_heads
    parts = [graph.reshape(part, 1, -1, sizes.d_model) for part in graph.split(qkv, 3)]
    attended = graph.contrib("MultiHeadAttention", *parts, num_heads=num_heads)
    return graph.reshape(attended, -1, sizes.d_model)
