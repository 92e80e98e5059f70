"""The sentence encoder all-MiniLM-L6-v2 as an ONNX graph, built from its published weights.

It does not own where the weights come from or where the graph is kept (`model.py` does), and it is
never imported by a serving process, because `onnx` is needed at set-up only.

- Input `ids` and `mask` (int64, (texts, tokens)); output `vectors` (float32, (texts, HIDDEN)),
  L2-normalised. Mean pooling and normalisation are part of the graph.
- A text's vector does not depend on what shares its batch. So activations are never quantised with
  one scale for a whole batch, which would also let one account's text move another's vector.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from onnx import TensorProto

from relayer.embedding.graph import CONTRIB, Array, Graph, Weights

HIDDEN: Final = 384
LAYERS: Final = 6
HEADS: Final = 12
HEAD_DIM: Final = HIDDEN // HEADS
LAYER_NORM_EPSILON: Final = 1e-12

_LEVELS: Final = 127
_ZERO_POINT: Final = 128  # activations are unsigned: the pair that processors multiply fastest
# A few channels are many times as large as all others, whatever the text; one scale for both would
# leave the others hardly any levels. They were found by looking at values of ordinary sentences.
# Source: Dettmers et al. 2022.
_OUTLIERS: Final = (63, 99, 157, 223)  # of what the layers pass on
_INNER_OUTLIERS: Final = {0: (856,), 1: (607,), 2: (218, 1004), 3: (358,)}  # by layer
_MASKED: Final = -1e9  # exp() of it is exactly 0, so padding cannot be seen in the result


def build(weights: Weights, *, int8: bool) -> bytes:
    """Return the serialised graph, with 8-bit weights if `int8`, else in float32 throughout.

    Source: Devlin et al. 2019 (the encoder); Reimers and Gurevych 2019 (the pooling).
    """
    graph = _Encoder(weights, int8=int8)
    scores_bias = _scores_bias(graph)
    x = _embeddings(graph)
    for layer in range(LAYERS):
        x = _attention(graph, x, scores_bias, f"encoder.layer.{layer}.attention")
        x = _feed_forward(graph, x, layer)
    _pool(graph, x)
    built, _ = graph.serialise(name="all-MiniLM-L6-v2", dim=HIDDEN)
    return built


class _Encoder(Graph):
    """The encoder under construction: products in floats, or in 8 bits if `int8`."""

    def __init__(self, weights: Weights, *, int8: bool) -> None:
        super().__init__(weights)
        self.int8 = int8

    def linear(
        self, x: str, name: str, weight: Array, bias: Array, outliers: Sequence[int] = ()
    ) -> str:
        """Add `x` times the transposed `weight` (outputs, inputs), plus `bias`.

        Inputs that are `outliers` are never multiplied in 8 bits.
        """
        if not self.int8:
            product = self._product(x, name, weight)
        elif not outliers:
            product = self._int8_product(x, name, weight)
        else:
            product = self._split_product(x, name, weight, outliers)
        return self.node("Add", product, self.floats(f"{name}.bias", bias))

    def _product(self, x: str, name: str, weight: Array) -> str:
        return self.node("MatMul", x, self.floats(f"{name}.weight", weight.T))

    def _split_product(self, x: str, name: str, weight: Array, outliers: Sequence[int]) -> str:
        """Return the outliers' part in floats, all others' in 8 bits."""
        chosen = list(outliers)
        few = self.node("Gather", x, self.integers(*outliers), axis=-1)
        others = np.ones(weight.shape[1])
        others[chosen] = 0
        rest = self.node("Mul", x, self.floats(f"{name}.others", others))
        return self.node(
            "Add",
            self._product(few, f"{name}.outliers", weight[:, chosen]),
            self._int8_product(rest, name, weight * others),
        )

    def _int8_product(self, x: str, name: str, weight: Array) -> str:
        """In 8 bits: a scale for each token, whose values are never all 0, and for each output."""
        peaks = self.node("ReduceMax", self.node("Abs", x), self.integers(-1))
        scales = self.node("Mul", peaks, self.number(1 / _LEVELS))
        zero = self.tensor("zero_point", np.array(_ZERO_POINT, np.uint8))
        one = self.number(1.0)
        rounded = self.node("QuantizeLinear", self.node("Div", x, scales), one, zero)
        levels, output_scales = _output_levels(weight)
        product = self.node(
            "MatMulIntegerToFloat",
            rounded,
            self.tensor(f"{name}.levels", levels.T.astype(np.int8)),
            one,
            self.floats(f"{name}.scales", output_scales),
            zero,
            domain=CONTRIB,
        )
        return self.node("Mul", product, scales)

    def dense(self, x: str, name: str, outliers: Sequence[int] = ()) -> str:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return self.linear(x, name, weight, bias, outliers)

    def layer_norm(self, x: str, name: str) -> str:
        scale = self.floats(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self.floats(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.node("LayerNormalization", x, scale, bias, epsilon=LAYER_NORM_EPSILON)


def _quantise(values: Array) -> tuple[Array, Array]:
    """Return (levels −127…127, scales) of `values`, one symmetric scale for each last-axis row."""
    return _levels(values, np.abs(values).max(axis=-1, keepdims=True))


def _output_levels(weight: Array) -> tuple[Array, Array]:
    """Return (levels, scales) of a weight (outputs, inputs), one symmetric scale an output.

    Levels of two neighbouring inputs together are at most 128, which is 127 and the rounding of
    both: processors without VNNI add two products in 16 bits, and 255 · 128 is the most that fits.
    """
    neighbours = np.abs(weight).reshape(len(weight), -1, 2).sum(axis=-1)
    levels, scales = _levels(weight, neighbours.max(axis=-1, keepdims=True))
    return levels, scales[:, 0]


def _levels(values: Array, peaks: Array) -> tuple[Array, Array]:
    scales = np.maximum(peaks, np.finfo(np.float32).tiny) / _LEVELS
    return np.round(values / scales), scales


def _scores_bias(g: _Encoder) -> str:
    """Return the addend of attention scores, (texts, 1, 1, tokens): 0, or −1e9 for padding."""
    mask = g.node("Cast", "mask", to=TensorProto.FLOAT)
    absent = g.node("Sub", g.number(1.0), mask)
    return g.node("Unsqueeze", g.node("Mul", absent, g.number(_MASKED)), g.integers(1, 2))


def _embeddings(g: _Encoder) -> str:
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


def _word_vectors(g: _Encoder, words: Array) -> str:
    if not g.int8:
        return g.node("Gather", g.floats("words", words), "ids")
    levels, scales = _quantise(words)
    rows = g.node("Gather", g.tensor("words.levels", levels.astype(np.int8)), "ids")
    row_scales = g.node("Gather", g.floats("words.scales", scales), "ids")
    return g.node("Mul", g.node("Cast", rows, to=TensorProto.FLOAT), row_scales)


def _attention(g: _Encoder, x: str, scores_bias: str, name: str) -> str:
    weight, bias = _query_key_value(g.weights, f"{name}.self")
    joint = g.linear(x, f"{name}.self", weight, bias, _OUTLIERS)
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


def _heads(g: _Encoder, x: str, order: Sequence[int]) -> str:
    split = g.node("Reshape", x, g.integers(0, 0, HEADS, HEAD_DIM))
    return g.node("Transpose", split, perm=list(order))


def _feed_forward(g: _Encoder, x: str, layer: int) -> str:
    name = f"encoder.layer.{layer}"
    inner = g.node("Gelu", g.dense(x, f"{name}.intermediate.dense", _OUTLIERS))
    out = g.dense(inner, f"{name}.output.dense", _INNER_OUTLIERS.get(layer, ()))
    return g.layer_norm(g.node("Add", out, x), f"{name}.output.LayerNorm")


def _pool(g: _Encoder, x: str) -> None:
    """Add the mean over a text's own tokens, at length 1; the mean's divisor cancels out."""
    mask = g.node("Unsqueeze", g.node("Cast", "mask", to=TensorProto.FLOAT), g.integers(1))
    total = g.node("Squeeze", g.node("MatMul", mask, x), g.integers(1))
    g.unit(total, name="vectors")
