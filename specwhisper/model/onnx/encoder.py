"""Whisper's encoder on ONNX Runtime, for windows of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from specwhisper.model.backend import Features
from specwhisper.model.backends import num_threads
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import ENCODER
from specwhisper.model.onnx.graph import Graph, Layers

FRAMES_PER_POSITION = 2  # the second convolution halves the frames


class OnnxEncoder:
    """The encoder of a checkpoint; a :class:`specwhisper.model.backend.Encoder`."""

    max_windows = 1  # threads of the runtime encode a window together

    def __init__(self, checkpoint: Checkpoint) -> None:
        # In int8, weights and activations of the layers are rounded.
        graph = encoder_graph(checkpoint.sizes, checkpoint.weights, is_int8=checkpoint.dtype == "int8")
        self._session = graph.open(num_threads())
        # Free what a window needs after each: 30 MB for tiny, which take about as long as a decoder step.
        self._options = onnxruntime.RunOptions()
        self._options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")

    def __call__(self, windows: Sequence[Features]) -> Sequence[NDArray[np.float32]]:
        """Encode windows one after the other.

        Each is mel bins x frames, and becomes (frames / 2) x d_model.
        """
        run, options = self._session.run, self._options
        return [run(["encoded"], {"features": features[None]}, options)[0] for features in windows]


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
        attended = _attend(graph, qkv, sizes)
        hidden = graph.node("Add", hidden, layers.linear(attended, f"{own}.out_proj"))
        expanded = layers.linear(layers.norm(hidden, f"{name}.final_layer_norm"), f"{name}.fc1")
        hidden = graph.node("Add", hidden, layers.linear(graph.contrib("Gelu", expanded), f"{name}.fc2"))
    encoded = layers.norm(hidden, f"{ENCODER}.layer_norm")
    graph.output("encoded", encoded, np.float32, ("positions", sizes.d_model))
    return graph


def _attend(graph: Graph, qkv: str, sizes: ModelSizes) -> str:
    """Attend from every position to every other: positions x (3 x d_model) to positions x d_model."""
    num_heads = sizes.encoder_attention_heads
    parts = [graph.reshape(part, 1, -1, sizes.d_model) for part in graph.split(qkv, 3)]
    attended = graph.contrib("MultiHeadAttention", *parts, num_heads=num_heads)
    return graph.reshape(attended, -1, sizes.d_model)
