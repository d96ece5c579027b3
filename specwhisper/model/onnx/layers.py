"""Layers of a graph: norms, and linear layers in float32 or int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.onnx.graph import Graph

ZERO_POINT = 128  # the byte of 0 in activations: signed ones are 6 to 16 times slower
LARGEST = 127
SMALLEST_SCALE = 1e-12


def round_rows(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each row of a matrix to int8; return the integers, a scale a row."""
    scales = np.maximum(np.abs(weight).max(axis=1), SMALLEST_SCALE) / LARGEST
    return np.rint(weight / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def rounded_activations(graph: Graph, value: str) -> tuple[str, str]:
    """Return rows as bytes, and the largest magnitude of each.

    The byte of 0 is :data:`ZERO_POINT`.
    """
    largest = graph.node("ReduceMax", graph.node("Abs", value), graph.constant([-1]), keepdims=1)
    largest = graph.node("Max", largest, graph.constant(SMALLEST_SCALE, np.float32))
    scaled = graph.node("Mul", graph.node("Div", value, largest), graph.constant(LARGEST, np.float32))
    # A cast cuts off towards zero, so a half is added to round.
    shifted = graph.node("Add", scaled, graph.constant(ZERO_POINT + 0.5, np.float32))
    return graph.cast(shifted, np.uint8), largest


@cache
def sums_bytes_exactly() -> bool:
    """Return whether products of bytes are exact; older x86 CPUs overflow."""
    graph = Graph()
    graph.input("bytes", np.uint8, ("rows", 64))
    weight = graph.weight(np.full((64, 16), LARGEST, np.int8))
    product = graph.node("MatMulInteger", "bytes", weight)
    graph.output("sums", product, np.int32, ("rows", 16))
    (sums,) = graph.open(1).run(None, {"bytes": np.full((4, 64), 255, np.uint8)})
    return bool((sums == 64 * 255 * LARGEST).all())


EPSILON = 1e-5  # every norm's


class Layers:
    """Adds layers to a graph, each by its name in the checkpoint.

    In int8, each output of a weight and each row of activations has a scale of its own, so that the result
    of a row does not depend on the other rows: the sums are of integers, and exact.

    Parameters
    ----------
    weights : by transformers' names.
    is_int8 : round weights and activations of linear layers to int8.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, NDArray[np.float32]], *, is_int8: bool) -> None:
        self._graph = graph
        self._weights = weights
        self._is_int8 = is_int8

    def weight(self, name: str) -> str:
        return self._graph.weight(self._weights[name])

    def norm(self, value: str, name: str) -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self._graph.node("LayerNormalization", value, weight, bias, axis=-1, epsilon=EPSILON)

    def linear(self, value: str, name: str) -> str:
        return self._product(value, self._weights[f"{name}.weight"], self._weights.get(f"{name}.bias"))

    def projected(self, value: str, name: str, parts: str, *, scale: float = 1.0) -> str:
        """Apply one or several projections of an attention at once.

        Parameters
        ----------
        parts : letters of ``q``, ``k`` and ``v``.
        scale : what the result is multiplied by.
        """
        names = [f"{name}.{part}_proj" for part in parts]
        weight, bias = self._joined(names)
        return self._product(value, weight * np.float32(scale), bias * np.float32(scale))

    def _joined(self, names: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the weights and biases of several layers as one; Whisper's keys have no bias."""
        weights = [self._weights[f"{name}.weight"] for name in names]
        biases = [
            self._weights.get(f"{name}.bias", np.zeros(len(weight), np.float32))
            for name, weight in zip(names, weights, strict=True)
        ]
        return np.concatenate(weights), np.concatenate(biases)

    def _product(self, value: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None) -> str:
        """Multiply rows by a weight, outputs x inputs, and add a bias."""
        graph = self._graph
        if not self._is_int8:
            biases = [] if bias is None else [graph.weight(bias)]
            return graph.node("Gemm", value, graph.weight(weight), *biases, transB=1)
        rounded, scales = round_rows(weight)
        activations, row_scales = rounded_activations(graph, value)
        product = graph.contrib(
            "MatMulIntegerToFloat",
            activations,
            graph.weight(rounded.T),
            graph.constant(1.0, np.float32),
            graph.weight(scales / LARGEST),
            graph.constant(ZERO_POINT, np.uint8),
        )
        product = graph.node("Mul", product, row_scales)
        return product if bias is None else graph.node("Add", product, graph.weight(bias))
