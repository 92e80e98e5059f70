"""The sentence encoder all-MiniLM-L6-v2 as an ONNX graph, built from its published weights.

It does not own where the weights come from or where the graph is kept (`model.py` does), and it is
never imported by a serving process, because `onnx` is needed at set-up only.

- Input `ids` and `mask` (int64, (texts, tokens)); output `vectors` (float32, (texts, HIDDEN)),
  L2-normalised. Mean pooling and normalisation are part of the graph.
- A text's vector does not depend on what shares its batch. So activations are never quantised with
  one scale for a whole batch, which would also let one account's text move another's vector.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN: Final = 384
LAYERS: Final = 6
HEADS: Final = 12
HEAD_DIM: Final = HIDDEN // HEADS
LAYER_NORM_EPSILON: Final = 1e-12

# Weights are scaled in blocks of 32 along the input: 0.998 of the float vectors' cosine where one
# scale a row leaves 0.97, for 5 % more bytes.
_BLOCK: Final = 32
_LEVELS: Final = 127
_ZERO_POINT: Final = 128  # what MatMulNBits assumes for 8 bits when no zero points are given
# accuracy_level of MatMulNBits: multiply in int8, activations scaled per row and block.
_INT8_ACTIVATIONS: Final = 4
_MASKED: Final = -1e9  # exp() of it is exactly 0, so padding cannot be seen in the result

_OPSET: Final = 20  # the first with Gelu
_IR_VERSION: Final = 9
_CONTRIB: Final = "com.microsoft"

Array = np.ndarray[Any, np.dtype[Any]]
Weights = Mapping[str, Array]


def build(weights: Weights, *, int8: bool) -> bytes:
    """Return the serialised graph, with 8-bit weights if `int8`, else in float32 throughout.

    Source: Devlin et al. 2019 (the encoder); Reimers and Gurevych 2019 (the pooling).
    """
    graph = _Graph(weights, int8=int8)
    scores_bias = _scores_bias(graph)
    x = _embeddings(graph)
    for layer in range(LAYERS):
        x = _attention(graph, x, scores_bias, f"encoder.layer.{layer}.attention")
        x = _feed_forward(graph, x, f"encoder.layer.{layer}")
    _pooling(graph, x)
    return graph.serialised()


class _Graph:
    """Nodes and initialisers under construction; every method returns a tensor's name."""

    def __init__(self, weights: Weights, *, int8: bool) -> None:
        self.weights = weights
        self.int8 = int8
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, onnx.TensorProto] = {}

    def tensor(self, name: str, values: Array) -> str:
        if name not in self._tensors:
            self._tensors[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def floats(self, name: str, values: Array) -> str:
        return self.tensor(name, values.astype(np.float32))

    def number(self, value: float) -> str:
        return self.floats(f"number.{value}", np.array(value))

    def integers(self, *values: int) -> str:
        return self.tensor(f"integers.{values}", np.array(values, np.int64))

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        return self.nodes(op, *inputs, outputs=1, domain=domain, **attributes)[0]

    def nodes(
        self, op: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        name = f"{op}.{len(self._nodes)}"
        names = [f"{name}.{n}" for n in range(outputs)]
        self._nodes.append(
            helper.make_node(op, list(inputs), names, name=name, domain=domain, **attributes)
        )
        return names

    def output(self, op: str, *inputs: str, name: str) -> None:
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name))

    def linear(self, x: str, name: str, weight: Array, bias: Array) -> str:
        """`x` times the transposed `weight` (outputs, inputs), plus `bias`."""
        if not self.int8:
            product = self.node("MatMul", x, self.floats(f"{name}.weight", weight.T))
            return self.node("Add", product, self.floats(f"{name}.bias", bias))
        outputs, inputs = weight.shape
        levels, scales = _quantised(weight.reshape(outputs, inputs // _BLOCK, _BLOCK))
        return self.node(
            "MatMulNBits",
            x,
            self.tensor(f"{name}.levels", (levels + _ZERO_POINT).astype(np.uint8)),
            self.floats(f"{name}.scales", scales.reshape(outputs, -1)),
            "",  # zero points: the default
            "",  # group index: unused
            self.floats(f"{name}.bias", bias),
            domain=_CONTRIB,
            K=inputs,
            N=outputs,
            bits=8,
            block_size=_BLOCK,
            accuracy_level=_INT8_ACTIVATIONS,
        )

    def dense(self, x: str, name: str) -> str:
        return self.linear(x, name, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def layer_norm(self, x: str, name: str) -> str:
        scale = self.floats(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self.floats(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.node("LayerNormalization", x, scale, bias, epsilon=LAYER_NORM_EPSILON)

    def serialised(self) -> bytes:
        shape = ["texts", "tokens"]
        graph = helper.make_graph(
            self._nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in ("ids", "mask")],
            [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", HIDDEN])],
            list(self._tensors.values()),
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="memrelay"
        )
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def _quantised(values: Array) -> tuple[Array, Array]:
    """Return (levels −127…127, scales) of `values`, one symmetric scale for each last-axis row."""
    peaks = np.abs(values).max(axis=-1, keepdims=True)
    scales = np.maximum(peaks, np.finfo(np.float32).tiny) / _LEVELS
    return np.round(values / scales), scales


def _scores_bias(g: _Graph) -> str:
    """What is added to attention scores, (texts, 1, 1, tokens): 0, or −1e9 for padding."""
    mask = g.node("Cast", "mask", to=TensorProto.FLOAT)
    absent = g.node("Sub", g.number(1.0), mask)
    return g.node("Unsqueeze", g.node("Mul", absent, g.number(_MASKED)), g.integers(1, 2))


def _embeddings(g: _Graph) -> str:
    words = g.weights["embeddings.word_embeddings.weight"]
    # Every text is one segment, so the first segment's vector is part of each position's.
    positions = (
        g.weights["embeddings.position_embeddings.weight"]
        + g.weights["embeddings.token_type_embeddings.weight"][0]
    )
    tokens = g.node("Shape", "ids", start=1, end=2)
    zero = g.integers(0)
    used = g.node("Slice", g.floats("positions", positions), zero, tokens, zero)
    return g.layer_norm(g.node("Add", _word_vectors(g, words), used), "embeddings.LayerNorm")


def _word_vectors(g: _Graph, words: Array) -> str:
    if not g.int8:
        return g.node("Gather", g.floats("words", words), "ids")
    levels, scales = _quantised(words)
    rows = g.node("Gather", g.tensor("words.levels", levels.astype(np.int8)), "ids")
    row_scales = g.node("Gather", g.floats("words.scales", scales), "ids")
    return g.node("Mul", g.node("Cast", rows, to=TensorProto.FLOAT), row_scales)


def _attention(g: _Graph, x: str, scores_bias: str, name: str) -> str:
    weight, bias = _query_key_value(g.weights, f"{name}.self")
    joint = g.linear(x, f"{name}.self", weight, bias)
    sizes = g.integers(HIDDEN, HIDDEN, HIDDEN)
    query, key, value = g.nodes("Split", joint, sizes, outputs=3, axis=-1)
    scores = g.node(
        "MatMul", _heads(g, query, (0, 2, 1, 3)), _heads(g, key, (0, 2, 3, 1))
    )  # (texts, HEADS, tokens, tokens)
    shares = g.node("Softmax", g.node("Add", scores, scores_bias), axis=-1)
    mixed = g.node("MatMul", shares, _heads(g, value, (0, 2, 1, 3)))
    rows = g.node("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = g.node("Reshape", rows, g.integers(0, 0, HIDDEN))
    out = g.dense(joined, f"{name}.output.dense")
    return g.layer_norm(g.node("Add", out, x), f"{name}.output.LayerNorm")


def _query_key_value(weights: Weights, name: str) -> tuple[Array, Array]:
    """Return one weight and bias for the three projections, with 1/√HEAD_DIM in the query's."""
    parts = ("query", "key", "value")
    weight = np.concatenate([weights[f"{name}.{part}.weight"] for part in parts])
    bias = np.concatenate([weights[f"{name}.{part}.bias"] for part in parts])
    weight[:HIDDEN] /= np.sqrt(HEAD_DIM)
    bias[:HIDDEN] /= np.sqrt(HEAD_DIM)
    return weight, bias


def _heads(g: _Graph, x: str, order: Sequence[int]) -> str:
    split = g.node("Reshape", x, g.integers(0, 0, HEADS, HEAD_DIM))
    return g.node("Transpose", split, perm=list(order))


def _feed_forward(g: _Graph, x: str, name: str) -> str:
    inner = g.node("Gelu", g.dense(x, f"{name}.intermediate.dense"))
    out = g.dense(inner, f"{name}.output.dense")
    return g.layer_norm(g.node("Add", out, x), f"{name}.output.LayerNorm")


def _pooling(g: _Graph, x: str) -> None:
    """The mean over a text's own tokens, at length 1; the mean's divisor cancels out."""
    mask = g.node("Unsqueeze", g.node("Cast", "mask", to=TensorProto.FLOAT), g.integers(1))
    total = g.node("Squeeze", g.node("MatMul", mask, x), g.integers(1))
    squares = g.node("ReduceSum", g.node("Mul", total, total), g.integers(-1), keepdims=1)
    g.output("Div", total, g.node("Sqrt", squares), name="vectors")
