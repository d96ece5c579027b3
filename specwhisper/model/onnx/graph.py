"""Build a graph of layers, in float32 or int8, for ONNX Runtime in memory; its weights stay where they are.

The weights are external initializers: the graph only names them, and the runtime takes their arrays when the
session opens. So no weight is written into a file or copied through protobuf, and opening takes a fraction of
a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, CONTRIB_OPSET, IR_VERSION = 20, 1, 10
CONTRIB = "com.microsoft"  # the domain of ONNX Runtime's own operators


class Graph:
    """Nodes in the order of their calls; a method returns its value's name.

    ``outer``: the graph in which this one is a branch; a branch sees the values of its outer graph.
    """

    def __init__(self, outer: Graph | None = None) -> None:
        self._arrays: dict[str, NDArray[Any]] = outer._arrays if outer else {}  # weights by name
        self._numbers: Iterator[int] = outer._numbers if outer else count(1)  # makes names unique
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def _new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> str:
        """Declare an input; a string in the shape is a length that varies."""
        self._inputs.append(_value(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: type[np.generic], shape: Sequence[int | str]) -> str:
        """Declare a value as an output with a name of its own."""
        if value != name:
            self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_value(name, dtype, shape))
        return name

    def weight(self, array: NDArray[Any]) -> str:
        """Name an array of the checkpoint."""
        name = self._new("weight")
        self._arrays[name] = np.ascontiguousarray(array)
        return name

    def constant(self, values: Any, dtype: type[np.generic] = np.int64) -> str:
        """Write a small array into the graph."""
        name = self._new("constant")
        self._constants.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def node(
        self,
        operator: str,
        *inputs: str,
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **fields: Any,
    ) -> str:
        """Add a node; return its first output, a new name unless ``outputs`` has all."""
        names = list(outputs or [self._new(operator)])
        self._nodes.append(helper.make_node(operator, list(inputs), names, domain=domain, **fields))
        return names[0]

    def contrib(
        self, operator: str, *inputs: str, outputs: Sequence[str] | None = None, **fields: Any
    ) -> str:
        """Add a node of ONNX Runtime's own, as :meth:`node`."""
        return self.node(operator, *inputs, outputs=outputs, domain=CONTRIB, **fields)

    def reshape(self, value: str, *shape: int) -> str:
        """Reshape a value; 0 keeps a length, -1 takes what is left."""
        return self.node("Reshape", value, self.constant(shape))

    def cast(self, value: str, dtype: type[np.generic]) -> str:
        return self.node("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def transpose(self, value: str, *order: int) -> str:
        return self.node("Transpose", value, perm=order)

    def split(self, value: str, num_parts: int) -> list[str]:
        """Split the last axis of a value into equal parts."""
        names = [self._new("part") for _ in range(num_parts)]
        self.node("Split", value, outputs=names, axis=-1, num_outputs=num_parts)
        return names

    def either(self, condition: str, then: Callable[[Graph], str], otherwise: Callable[[Graph], str]) -> str:
        """Run one of two branches, each of which returns a float32 value of rows."""
        branches = []
        for build in (then, otherwise):
            branch = Graph(self)
            value = build(branch)
            branch.output(branch._new("branch"), value, np.float32, ("rows", "width"))
            branches.append(branch._proto("branch"))
        return self.node("If", condition, then_branch=branches[0], else_branch=branches[1])

    def open(self, num_threads: int) -> onnxruntime.InferenceSession:
        """Open a session on the CPU. The graph cannot be used afterwards."""
        arrays = self._arrays
        options = session_options(num_threads)
        options.add_external_initializers(
            list(arrays), [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays.values()]
        )
        graph = self._proto("whisper")
        graph.initializer.extend(_external(name, array) for name, array in arrays.items())
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, CONTRIB_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        arrays.clear()  # the session has packed them; the originals may be freed
        return session

    def _proto(self, name: str) -> GraphProto:
        return helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)


def session_options(num_threads: int) -> onnxruntime.SessionOptions:
    """Return options for a session that shares its cores with others."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, so they need not be printed too
    # Threads that wait in a loop would take the cores of the other sessions.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _value(name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))


def _external(name: str, array: NDArray[Any]) -> TensorProto:
    """Describe a weight whose values the session receives beside the graph."""
    tensor = TensorProto(
        name=name,
        dims=array.shape,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        data_location=TensorProto.EXTERNAL,
    )
    tensor.external_data.add(key="location", value="memory")
    return tensor


def bind(
    binding: onnxruntime.IOBinding, *, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
) -> None:
    """Bind arrays by address; they must stay in place as long as the binding."""
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


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
