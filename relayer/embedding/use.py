"""The multilingual Universal Sentence Encoder as an ONNX graph, built from its published weights.

Not here: where the weights come from and where the graph is kept (`model.py`), the tokens
(`sentencepiece.py`). Never imported by a serving process, because `onnx` is needed at set-up only.

- A token's vector and what three widths of neighbours make of it, twice each; their mean over the
  text; a network of four layers. It is a sixth of the work that six layers of attention are.
- A text's vector does not depend on what shares its batch: padding is zero before it is looked at.
- The vocabulary's vectors stay in the 8 bits that they were published in, in a file that is mapped:
  of 65 MB a process has what it looked up.
"""

from typing import Final

import numpy as np
from onnx import TensorProto

from relayer.embedding.graph import Array, Graph, Weights

DIM: Final = 512
_TOKEN_DIM: Final = 512
_PARTS: Final = 17  # of the vocabulary: a token is in the part `id % 17`, at the row `id // 17`
_WIDTHS: Final = {2: 0, 3: 1, 5: 2}  # tokens that are looked at together → how many lie before
_EPSILON: Final = 1e-12


def build(weights: Weights) -> tuple[bytes, bytes]:
    """Return the serialised graph, and the vocabulary's vectors for the file beside it.

    Source: Yang et al. 2019 (the convolutional one); Cer et al. 2018 (the mean over √tokens).
    """
    graph = Graph(weights)
    mask = graph.node(
        "Unsqueeze", graph.node("Cast", "mask", to=TensorProto.FLOAT), graph.integers(2)
    )  # (texts, tokens, 1)
    tokens = _tokens(graph)
    seen = [tokens, *(_neighbours(graph, tokens, mask, width) for width in _WIDTHS)]
    features = _norm(graph, graph.node("Concat", *seen, axis=-1), "")
    graph.unit(_network(graph, _mean(graph, features, mask)), name="vectors")
    return graph.serialise(name="universal-sentence-encoder-multilingual-3", dim=DIM)


def _tokens(g: Graph) -> str:
    """Return the tokens' vectors, (texts, tokens, _TOKEN_DIM)."""
    rows = g.node("Gather", g.beside("words", _vocabulary(g.weights)), "ids")
    part = g.node("Mod", "ids", g.integers(_PARTS))
    scale = g.node("Gather", g.floats("scale", g.weights["scale"][:, None]), part)
    least = g.node("Gather", g.floats("least", g.weights["lo"][:, None]), part)
    return g.node("Add", g.node("Mul", g.node("Cast", rows, to=TensorProto.FLOAT), scale), least)


def _vocabulary(weights: Weights) -> Array:
    """Return the rows of all parts in the order of their tokens, uint8."""
    parts = np.stack([weights[f"q{n + 1}"] for n in range(_PARTS)], axis=1)
    return parts.reshape(-1, _TOKEN_DIM)


def _neighbours(g: Graph, tokens: str, mask: str, width: int) -> str:
    """Return each token mixed with its neighbours, `width` of them with itself."""
    x = _dense(g, tokens, f"proj{width}", f"proj_b{width}")
    x = _norm(g, x, str(width))
    for layer in (1, 2):
        inner = _dense(
            g, _windows(g, g.node("Mul", x, mask), width), f"w{layer}_{width}", f"b{layer}_{width}"
        )
        x = g.node("Add", g.node("Relu", inner), x)
    return x


def _windows(g: Graph, x: str, width: int) -> str:
    """Return rows with their neighbours', (texts, tokens, width · dim), zeros beyond the ends."""
    before = _WIDTHS[width]
    after = width - 1 - before
    padded = g.node("Pad", x, g.integers(0, before, 0, 0, after, 0))
    zero, one = g.integers(0), g.integers(1)
    tokens = g.node("Shape", "ids", start=1, end=2)
    shifted = [
        g.node("Slice", padded, g.integers(at), g.node("Add", tokens, g.integers(at)), one)
        if at
        else g.node("Slice", padded, zero, tokens, one)
        for at in range(width)
    ]
    return g.node("Concat", *shifted, axis=-1)


def _mean(g: Graph, features: str, mask: str) -> str:
    """Return the sum of what is made of each token, over √tokens: (texts, dim)."""
    tokens = g.node("ReduceSum", mask, g.integers(1), keepdims=0)  # (texts, 1)
    total = g.node("ReduceSum", g.node("Mul", features, mask), g.integers(1), keepdims=0)
    product = g.node("MatMul", total, g.floats("cnn_W", g.weights["cnn_W"]))
    bias = g.node("Mul", tokens, g.floats("cnn_b", g.weights["cnn_b"]))
    return g.node("Div", g.node("Add", product, bias), g.node("Sqrt", tokens))


def _network(g: Graph, x: str) -> str:
    """Four layers; what goes into two of them is added to what comes out, once projected."""
    inner = g.node("Relu", _product(g, x, "d0"))
    middle = g.node("Relu", g.node("Add", _product(g, x, "p1"), _product(g, inner, "d1")))
    inner = g.node("Relu", _product(g, middle, "d2"))
    return g.node("Tanh", g.node("Add", _product(g, middle, "p3"), _product(g, inner, "d3")))


def _product(g: Graph, x: str, name: str) -> str:
    return g.node("MatMul", x, g.floats(name, g.weights[name]))


def _dense(g: Graph, x: str, weight: str, bias: str) -> str:
    return g.node("Add", _product(g, x, weight), g.floats(bias, g.weights[bias]))


def _norm(g: Graph, x: str, which: str) -> str:
    scale = g.floats(f"ln_g{which}", g.weights[f"ln_g{which}"])
    bias = g.floats(f"ln_b{which}", g.weights[f"ln_b{which}"])
    return g.node("LayerNormalization", x, scale, bias, epsilon=_EPSILON)
