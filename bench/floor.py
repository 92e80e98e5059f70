"""What a recall cannot do without, executed piece by piece in this process.

Not here: a recall (`recall.py`).

- The pieces: one run of onnxruntime on the query, one Ed25519 verification, one nearest-neighbour
  query for as many results, and opening as many envelopes. Their bytes are fetched off the clock.
- The query is an exact pgvector scan of the namespace's rows, or goes through an HNSW index over a
  copy of them alone (`indexed`), which finds nearly all and would have to be kept for each one.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from nacl.signing import SigningKey
from onnxruntime import InferenceSession, SessionOptions

from bench.filling import Filled
from bench.running import MODEL_FOLDER
from relayer.database.pool import Connection, halfvec
from relayer.embedding.passages import load_tokenizer
from relayer.embedding.published import GRAPH_FILE, TOKENIZER_FILE
from relayer.sealed import envelope
from relayer.sealed.vector_turn import derive_vector_turn

LIMIT: Final = 10
PIECES: Final = ("embed", "verify", "search", "open")

# The nearest of a namespace: every vector of it is compared.
_NEAREST: Final = """
SELECT memory_id FROM vectors
WHERE account_id = $1 AND namespace_id = $2 AND epoch = $3 AND model = $4
ORDER BY embedding <=> $5 LIMIT $6
"""
_NEAREST_OF_TABLE: Final = "SELECT memory_id FROM {table} ORDER BY embedding <=> $1 LIMIT $2"
_TABLE: Final = """
CREATE TABLE {table} AS SELECT memory_id, embedding::halfvec({dim}) AS embedding FROM vectors
WITH NO DATA
"""
_COPIED: Final = """
INSERT INTO {table} SELECT memory_id, embedding::halfvec({dim}) FROM vectors
WHERE account_id = $1 AND namespace_id = $2 AND epoch = $3 AND model = $4
"""
_BLOBS: Final = """
SELECT m.memory_id, b.bytes FROM memories m
JOIN blobs b ON b.account_id = $1 AND b.blob_id = m.blob_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2)
"""


class Session:
    """onnxruntime on the built-in model, with nothing around it."""

    def __init__(self, threads: int = 1) -> None:
        """With so many threads a run; one as in the relayer, for after a pause two take longer."""
        options = SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that spin would slow down what is measured next.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._tokenizer = load_tokenizer(MODEL_FOLDER / TOKENIZER_FILE)
        self._session = InferenceSession(
            str(MODEL_FOLDER / GRAPH_FILE), options, providers=["CPUExecutionProvider"]
        )

    def tokens(self, text: str) -> list[int]:
        """The token ids of a text."""
        return list(self._tokenizer.encode(text).ids)

    def run(self, tokens: list[list[int]]) -> npt.NDArray[np.float32]:
        """The vectors of texts of the same length or padded to it, (n, dim)."""
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(tokens):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        (vectors,) = self._session.run(["vectors"], {"ids": ids, "mask": mask})
        return np.asarray(vectors, np.float32)


async def indexed(connection: Connection, filled: Filled, model_id: str, table: str) -> str:
    """The name of a new table of a namespace's vectors alone, with pgvector's HNSW index."""
    dim = filled.vectors.shape[1]
    place = (filled.account.id, filled.namespace_id, filled.key.epoch, model_id)
    await connection.execute(_TABLE.format(table=table, dim=dim))
    await connection.execute(_COPIED.format(table=table, dim=dim), *place)
    await connection.execute(f"CREATE INDEX ON {table} USING hnsw (embedding halfvec_cosine_ops)")
    await connection.execute(f"ANALYZE {table}")
    return table


@dataclass
class Floor:
    """The pieces of a recall in one filled namespace; `table` is one of `indexed`."""

    filled: Filled
    session: Session
    connection: Connection
    model_id: str
    table: str = ""

    def __post_init__(self) -> None:
        self._signer = SigningKey.generate()
        self._turn = derive_vector_turn(
            self.filled.key, self.model_id, self.filled.vectors.shape[1]
        )
        self._prepared: Any = None
        filled, self._nearest = self.filled, _NEAREST
        self._place: tuple[Any, ...] = (
            filled.account.id, filled.namespace_id, filled.key.epoch, self.model_id,
        )  # fmt: skip
        if self.table:
            self._nearest, self._place = _NEAREST_OF_TABLE.format(table=self.table), ()

    async def measure(self, question: str) -> dict[str, float]:
        """Seconds of each piece for one question."""
        if self._prepared is None:
            self._prepared = await self.connection.prepare(self._nearest)
        signed = self._signer.sign(question.encode())
        key, spent = self._signer.verify_key, {}
        began = time.perf_counter()
        vector = self.session.run([self.session.tokens(question)])
        spent["embed"] = time.perf_counter() - began
        began = time.perf_counter()
        key.verify(signed)
        spent["verify"] = time.perf_counter() - began
        turned = halfvec(self._turn.apply(vector)[0].astype(np.float16))
        account, key_of = self.filled.account, self.filled.key
        began = time.perf_counter()
        found = await self._prepared.fetch(*self._place, turned, LIMIT)
        spent["search"] = time.perf_counter() - began
        blobs = await self.connection.fetch(_BLOBS, account.id, [r["memory_id"] for r in found])
        began = time.perf_counter()
        for memory_id, blob in blobs:
            address = envelope.Address(envelope.MEMORY, account.id, memory_id, 1)
            envelope.open_envelope(key_of, address, blob)
        spent["open"] = time.perf_counter() - began
        return spent
