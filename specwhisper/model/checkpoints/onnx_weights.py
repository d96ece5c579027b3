"""Weights in ONNX files, as optimum and transformers.js lay them out.

Their names are transformers', but for matrices and the encoder's positions, which the exporter of PyTorch
numbers: the nodes that use them show which is which. It also transposes the matrices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.errors import CheckpointError
from specwhisper.extras import needs_extra
from specwhisper.model.checkpoints.weights import ENCODER, Weights

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

MERGED = re.compile(r"_merged_\d+$")  # the end of a name where decoders with and without a past are one file
FLOATS = {1: "<f4", 10: "<f2"}  # ONNX's numbers of types
EXTERNAL = 1  # TensorProto.EXTERNAL: in another file
MATRIX_NODE = re.compile(r"/(?P<path>.+)/MatMul")


class _Tensor:
    """A tensor of a file; its numbers, if in another file, are read at each call.

    onnx's own reader refuses links, and the hub's cache consists of them.
    """

    def __init__(self, tensor: TensorProto, folder: Path, *, is_transposed: bool) -> None:
        shape = tuple(tensor.dims)
        self.shape = shape[::-1] if is_transposed else shape
        self._tensor = tensor
        self._is_transposed = is_transposed
        self._place: tuple[Path, int] | None = None  # file and offset
        if tensor.data_location == EXTERNAL:
            self._place = _place_of(tensor, folder)

    def read(self) -> NDArray[Any]:
        from onnx import numpy_helper

        if self._place is None:
            array = numpy_helper.to_array(self._tensor)
        else:
            path, offset = self._place
            shape = tuple(self._tensor.dims)
            array = np.fromfile(path, FLOATS[self._tensor.data_type], math.prod(shape), offset=offset)
            array = array.reshape(shape)
        return np.ascontiguousarray(array.T) if self._is_transposed else array


def _place_of(tensor: TensorProto, folder: Path) -> tuple[Path, int]:
    """Return the file and the offset of a tensor's numbers."""
    named = {each.key: each.value for each in tensor.external_data}
    name, offset = named.get("location", ""), int(named.get("offset", 0))
    path = folder / name
    if not name or Path(name).name != name or not path.is_file():
        raise CheckpointError(f"{folder} has no file '{name}' of weights, which its model needs: fetch it.")
    num_bytes = math.prod(tensor.dims) * np.dtype(FLOATS[tensor.data_type]).itemsize
    if offset + num_bytes > path.stat().st_size:
        raise CheckpointError(f"{path} is too short for its weights: fetch it again.")
    return path, offset


def weights_in_onnx(encoder: Path, decoder: Path) -> Weights:
    """Open the weights of an encoder's and a decoder's file.

    ``decoder``: with or without a past, or both merged.
    """
    with needs_extra("a model in ONNX files", "draft"):
        import onnx
    arrays: dict[str, _Tensor] = {}
    for path, prefix in ((encoder, f"{ENCODER}."), (decoder, "")):
        graph = onnx.load(path, load_external_data=False).graph
        found = {
            prefix + name: _Tensor(tensor, path.parent, is_transposed=is_transposed)
            for name, tensor, is_transposed in _named(graph)
        }
        if not any(len(each.shape) == 2 and name.endswith("proj.weight") for name, each in found.items()):
            raise CheckpointError(
                f"{path} has no matrices of float32 or float16: fetch the files that are not quantised."
            )
        arrays |= found
    return Weights(arrays)


def _named(graph: GraphProto) -> Iterator[tuple[str, TensorProto, bool]]:
    """Yield the weights of a graph and its branches: name, tensor, whether it is transposed."""
    tensors = {
        tensor.name: tensor
        for each in _graphs(graph)
        for tensor in each.initializer
        if tensor.data_type in FLOATS
    }
    for name, tensor in tensors.items():
        yield MERGED.sub("", name), tensor, False
    for node in (node for each in _graphs(graph) for node in each.node):
        used = tensors.get(node.input[1]) if len(node.input) == 2 else None
        if used is None or len(used.dims) != 2:
            continue
        if node.op_type == "MatMul" and (match := MATRIX_NODE.fullmatch(node.name)):
            yield match["path"].replace("/", ".") + ".weight", used, True
        elif node.op_type == "Add":
            yield "embed_positions.weight", used, False


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
