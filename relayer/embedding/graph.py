"""An ONNX graph under construction, for whoever builds a model from its weights.

Not here: what is computed (`bert.py`, `use.py`). Never imported by a serving process, because
`onnx` is needed at set-up only.

- Inputs `ids` and `mask` (int64, (texts, tokens)); output `vectors` (float32, (texts, dim)).
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET: Final = 20  # the first with Gelu
IR_VERSION: Final = 9
CONTRIB: Final = "com.microsoft"  # onnxruntime's own operators
BESIDE: Final = "words.bin"  # the file beside the graph's

Array = np.ndarray[Any, np.dtype[Any]]
Weights = Mapping[str, Array]


class Graph:
    """Nodes and initialisers under construction; every method returns a tensor's name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._beside: str | None = None

    def tensor(self, name: str, values: Array) -> str:
        """Add a constant, once for each `name`."""
        if name not in self._tensors:
            self._tensors[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def beside(self, name: str, values: Array) -> str:
        """Add a constant, one in a graph, whose bytes are in the file `BESIDE`.

        It is mapped, not read, so what is looked up in it is all that takes memory.
        """
        self._beside = self.tensor(name, values)
        return self._beside

    def floats(self, name: str, values: Array) -> str:
        """Add a constant in float32."""
        return self.tensor(name, values.astype(np.float32))

    def number(self, value: float) -> str:
        """Add a constant without dimensions."""
        return self.floats(f"number.{value}", np.array(value))

    def integers(self, *values: int) -> str:
        """Add a constant row of int64."""
        return self.tensor(f"integers.{values}", np.array(values, np.int64))

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node that applies `op` to its inputs; return the name of its output."""
        return self.nodes(op, *inputs, outputs=1, domain=domain, **attributes)[0]

    def nodes(
        self, op: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node that applies `op` to its inputs; return the names of its `outputs`."""
        name = f"{op}.{len(self._nodes)}"
        names = [f"{name}.{n}" for n in range(outputs)]
        self._nodes.append(
            helper.make_node(op, list(inputs), names, name=name, domain=domain, **attributes)
        )
        return names

    def output(self, op: str, *inputs: str, name: str) -> None:
        """Add a node that applies `op` to its inputs, as the graph's output `name`."""
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name))

    def unit(self, x: str, *, name: str) -> None:
        """Add the graph's output `name`: the rows of `x` at length 1."""
        squares = self.node("ReduceSum", self.node("Mul", x, x), self.integers(-1), keepdims=1)
        self.output("Div", x, self.node("Sqrt", squares), name=name)

    def serialise(self, *, name: str, dim: int) -> tuple[bytes, bytes]:
        """Return the graph `name` as a checked file, and the file that lies beside it.

        `dim` is that of a vector.
        """
        shape = ["texts", "tokens"]
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in ("ids", "mask")],
            [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", dim])],
            list(self._tensors.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="memrelay"
        )
        onnx.checker.check_model(model)
        beside = b"".join(_move_bytes(t) for t in model.graph.initializer if t.name == self._beside)
        return bytes(model.SerializeToString()), beside


def _move_bytes(tensor: onnx.TensorProto) -> bytes:
    """Take a constant's bytes out of a graph that refers to them from now on."""
    data = bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=BESIDE)
    return data
