"""Numbers rounded to int8: weights beforehand, activations in the graph."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.onnx.graph import Graph

ZERO_POINT = 128  # of activations: signed ones are 6 to 16 times slower
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
