"""Whisper's encoder on ONNX Runtime, for windows of any length."""

from __future__ import annotations

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.onnx.decoder_graph import EPSILON, Weights, projection
from specwhisper.model.onnx.graph import Graph
from specwhisper.model.onnx.linear import Linear

ROOT = "model.encoder"
FRAMES_PER_POSITION = 2  # the second convolution halves the frames


class WindowEncoder:
    """Encodes one window at a time; safe in several threads.

    Parameters
    ----------
    is_int8 : round weights and activations of the layers to int8.
    """

    def __init__(self, sizes: ModelSizes, weights: Weights, *, is_int8: bool, num_threads: int) -> None:
        self._session = encoder_graph(sizes, weights, is_int8=is_int8).open(num_threads)
        # Free what a window needs after each: 30 MB for tiny, which take about as long as a decoder step.
        self._options = onnxruntime.RunOptions()
        self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Encode a window: mel bins x frames to (frames / 2) x d_model."""
        inputs = {"features": features[None]}
        encoded: NDArray[np.float32] = self._session.run(["encoded"], inputs, self._options)[0]
        return encoded


def encoder_graph(sizes: ModelSizes, weights: Weights, *, is_int8: bool) -> Graph:
    """Return a graph from ``features`` to ``encoded``."""
    graph = Graph()
    linear = Linear(graph, is_int8=is_int8)
    graph.input("features", np.float32, (1, sizes.num_mel_bins, "frames"))

    def norm(value: str, name: str) -> str:
        parts = (graph.weight(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return graph.node("LayerNormalization", value, *parts, axis=-1, epsilon=EPSILON)

    def plain(value: str, name: str) -> str:
        return linear(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

    hidden = "features"
    for name, stride in (("conv1", 1), ("conv2", FRAMES_PER_POSITION)):
        parts = (graph.weight(weights[f"{ROOT}.{name}.{part}"]) for part in ("weight", "bias"))
        convolved = graph.node("Conv", hidden, *parts, kernel_shape=[3], pads=[1, 1], strides=[stride])
        hidden = graph.contrib("Gelu", convolved)
    hidden = graph.reshape(graph.transpose(hidden, 0, 2, 1), -1, sizes.d_model)
    num_positions = graph.node("Shape", hidden, start=0, end=1)
    places = graph.node(
        "Slice", graph.weight(weights[f"{ROOT}.embed_positions.weight"]), graph.constant([0]), num_positions
    )
    hidden = graph.node("Add", hidden, places)
    for layer in range(sizes.encoder_layers):
        root = f"{ROOT}.layers.{layer}"
        normed = norm(hidden, f"{root}.self_attn_layer_norm")
        qkv = linear(normed, *projection(weights, f"{root}.self_attn", "qkv"))
        attended = _attend(graph, qkv, sizes)
        hidden = graph.node("Add", hidden, plain(attended, f"{root}.self_attn.out_proj"))
        normed = norm(hidden, f"{root}.final_layer_norm")
        expanded = graph.contrib("Gelu", plain(normed, f"{root}.fc1"))
        hidden = graph.node("Add", hidden, plain(expanded, f"{root}.fc2"))
    encoded = norm(hidden, f"{ROOT}.layer_norm")
    graph.output("encoded", encoded, np.float32, ("positions", sizes.d_model))
    return graph


def _attend(graph: Graph, qkv: str, sizes: ModelSizes) -> str:
    """Attend from every position to every other: positions x (3 x d_model) to positions x d_model."""
    num_heads = sizes.encoder_attention_heads
    parts = [graph.reshape(part, 1, -1, sizes.d_model) for part in graph.split(qkv, 3)]
    attended = graph.contrib("MultiHeadAttention", *parts, num_heads=num_heads)
    return graph.reshape(attended, -1, sizes.d_model)
