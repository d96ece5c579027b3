"""Linear layers of a graph, in float32 or in int8."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.onnx.graph import Graph

ZERO_POINT = 128  # of activations: signed ones are 6 to 16 times slower
LARGEST = 127
SMALLEST_SCALE = 1e-12


class Linear:
    """Adds linear layers to a graph.

    In int8, each output of a weight and each row of activations has a scale of its own, so that the result
    of a row does not depend on the other rows: the sums are of integers, and exact.

    Parameters
    ----------
    is_int8 : round weights and activations to int8.
    """

    def __init__(self, graph: Graph, *, is_int8: bool) -> None:
        self._graph = graph
        self._is_int8 = is_int8

    def __call__(
        self, value: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None
    ) -> str:
        """Multiply rows by a weight, outputs x inputs, and add a bias."""
        graph = self._graph
        if not self._is_int8:
            biases = [] if bias is None else [graph.weight(bias)]
            return graph.node("Gemm", value, graph.weight(weight), *biases, transB=1)
        rounded, scales = round_rows(weight)
        activations, row_scales = self._rounded(value)
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

    def _rounded(self, value: str) -> tuple[str, str]:
        """Return rows as bytes, and the largest magnitude of each."""
        graph = self._graph
        largest = graph.node("ReduceMax", graph.node("Abs", value), graph.constant([-1]), keepdims=1)
        largest = graph.node("Max", largest, graph.constant(SMALLEST_SCALE, np.float32))
        scaled = graph.node("Mul", graph.node("Div", value, largest), graph.constant(LARGEST, np.float32))
        # A cast cuts off towards zero, so a half is added to round.
        shifted = graph.node("Add", scaled, graph.constant(ZERO_POINT + 0.5, np.float32))
        return graph.node("Cast", shifted, to=2), largest  # 2: uint8


def round_rows(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round each row of a matrix to int8; return the integers, a scale a row."""
    scales = np.maximum(np.abs(weight).max(axis=1), SMALLEST_SCALE) / LARGEST
    return np.rint(weight / scales[:, None]).astype(np.int8), scales.astype(np.float32)


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
