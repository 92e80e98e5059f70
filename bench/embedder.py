"""The built-in model against the weights it is made of: how far its vectors lie, what a run takes.

    python -m bench.embedder

Not here: what a recall finds with it (`retrieval.py`), agreement with a plain forward pass (tests).

- Both graphs run in this process on one thread, in turn. The weights as they are published are
  fetched once, into a folder beside the model's.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from onnxruntime import InferenceSession, SessionOptions

from bench.running import MODEL_FOLDER
from bench.sentences import sentence
from relayer.embedding import bert, model
from relayer.embedding.passages import load_tokenizer
from relayer.embedding.published import ENGLISH, GRAPH_FILE, TOKENIZER_FILE, read_weights

WHOLE: Final = 100  # sentences
FRAGMENTS: Final = 27  # beginnings of sentences, of one word and more
SHAPES: Final = ((1, 16), (8, 16), (1, 128))  # texts × tokens of a run
ROUNDS: Final = 40
HEAD: Final = "| | cosine, worst, mean |"

Vectors = npt.NDArray[np.float32]


class Graph:
    """A graph of the model, run on one thread."""

    def __init__(self, name: str, graph: bytes) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = 1
        self.name = name
        self._session = InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(self, ids: npt.NDArray[np.int64]) -> Vectors:
        """The vectors of texts of the same length, (n, dim)."""
        (vectors,) = self._session.run(["vectors"], {"ids": ids, "mask": np.ones_like(ids)})
        return np.asarray(vectors, np.float32)

    def taken_ms(self, ids: npt.NDArray[np.int64]) -> float:
        """What one run takes."""
        began = time.perf_counter()
        self.run(ids)
        return 1000 * (time.perf_counter() - began)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works")
    quick = parser.parse_args().quick
    published = MODEL_FOLDER.with_name(f"{MODEL_FOLDER.name}-upstream")
    model.download(ENGLISH, published, progress=lambda message: print(message, file=sys.stderr))
    floats = bert.build(read_weights(published / "model.safetensors"), int8=False)
    graphs = [
        Graph("fp32", floats),
        Graph("int8, as it is served", (MODEL_FOLDER / GRAPH_FILE).read_bytes()),
    ]
    for line in _table(graphs, rounds=2 if quick else ROUNDS):
        print(line)
    return 0


def _table(graphs: Sequence[Graph], *, rounds: int) -> list[str]:
    tokens = _tokens(MODEL_FOLDER)
    vectors = [np.concatenate([graph.run(text) for text in tokens]) for graph in graphs]
    taken = _taken_ms(graphs, rounds)
    rows = [HEAD + "".join(f" {n} × {length} tokens |" for n, length in SHAPES)]
    rows.append("|---" * (len(SHAPES) + 2) + "|")
    for graph, found, times in zip(graphs, vectors, taken, strict=True):
        near = np.sum(found * vectors[0], axis=1)
        spent = "".join(f" {ms:.1f} ms |" for ms in times)
        rows.append(f"| {graph.name} | {near.min():.4f}, {near.mean():.4f} |{spent}")
    return rows


def _tokens(folder: Path) -> list[npt.NDArray[np.int64]]:
    tokenizer = load_tokenizer(folder / TOKENIZER_FILE)
    texts = [sentence(number) for number in range(WHOLE)]
    for number in range(1, FRAGMENTS + 1):
        words = sentence(WHOLE + number).split()
        texts.append(" ".join(words[: 1 + number % len(words)]))
    return [np.array([tokenizer.encode(text).ids], np.int64) for text in texts]


def _taken_ms(graphs: Sequence[Graph], rounds: int) -> list[list[float]]:
    """Of each graph, the median of each shape; in each round all graphs one after the other."""
    random = np.random.default_rng(1)
    runs = [random.integers(1_000, 20_000, shape, np.int64) for shape in SHAPES]
    spent: list[list[list[float]]] = [[[] for _ in runs] for _ in graphs]
    for turn in range(rounds + 1):
        for graph, times in zip(graphs, spent, strict=True):
            for ids, one in zip(runs, times, strict=True):
                one.append(graph.taken_ms(ids))
        if not turn:  # the first is for warming
            spent = [[[] for _ in runs] for _ in graphs]
    return [[statistics.median(one) for one in times] for times in spent]


if __name__ == "__main__":
    sys.exit(main())
