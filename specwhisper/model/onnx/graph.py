"""Build a graph for ONNX Runtime in memory; its weights stay where they are.

The weights are external initializers: the graph only names them, and the runtime takes their arrays when the
session opens. So no weight is written into a file or copied through protobuf, and opening takes a fraction of
a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
