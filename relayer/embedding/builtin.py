"""The built-in embedder: a published model in this process, from files and without network.

Not here: which models there are (`published.py`), their files (`model.py`), whose turn it is in
the worker thread (`runs.py`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from onnxruntime import InferenceSession, SessionOptions

from relayer.embedding import model, vocabulary
from relayer.embedding.embedders import Coverage, Vectors
from relayer.embedding.passages import Splitter, load_tokenizer, version_of
from relayer.embedding.published import ENGLISH, GRAPH_FILE, TOKENIZER_FILE, Published
from relayer.embedding.runs import Runs
from relayer.telemetry.instruments import time_embedding

# The models were trained on texts this short: its vectors of longer ones blur (DECISIONS.md).
_PASSAGE_TOKENS: Final = 126
_OVERLAP_TOKENS: Final = 16
# Larger runs are no faster per token, and others wait for the run that is under way.
_TOKENS_PER_RUN_MAX: Final = 128
_CHARS_PER_TOKEN_MAX: Final = 128  # beyond it a text is cut before it is tokenised
THREADS: Final = 2
_CHARS_AT_ONCE_MAX: Final = 1_000  # cutting so few takes less time than giving them to a thread


class BuiltinEmbedder:
    """A published model in this process; runs in worker threads, from files and without network.

    Each run of a call is queued by itself. Queries have threads of their own; those that embed
    what is stored yield to these, and to whatever else the machine has to do.
    """

    def __init__(
        self, *, folder: Path, published: Published = ENGLISH, threads: int = THREADS
    ) -> None:
        """Load the model from its folder, for so many runs at a time.

        Raises:
            Unavailable: `embedder.model_missing`, `relayer model fetch` has to be run first.
        """
        model.require(published, folder)
        self.model_id = published.model_id
        self.dim = published.dim
        self.related = published.related
        self._tokenizer = load_tokenizer(folder / TOKENIZER_FILE)
        self._special = self._tokenizer.encode("").ids  # what stands before and after a text
        self._content_max = published.tokens_max - len(self._special)
        self._splitter = Splitter(
            tokenizer=self._tokenizer,
            tokens_max=_PASSAGE_TOKENS,
            overlap_tokens=_OVERLAP_TOKENS,
        )
        self.version = version_of(self.model_id, self._splitter)
        self._session = InferenceSession(
            str(folder / GRAPH_FILE),
            _session_options(),
            providers=["CPUExecutionProvider"],
        )
        self._threads = threads
        self._queries = Runs(threads)
        self._stored = Runs(threads, yields=True)

    async def close(self) -> None:
        """Wait for the runs under way and end the worker threads."""
        await asyncio.to_thread(self._stored.close)
        await asyncio.to_thread(self._queries.close)

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`, (n, dim), L2-normalised; `account` has no effect."""
        return await self._embed(texts, self._stored)

    async def embed_query(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the same as `embed`, whatever is embedded to be stored meanwhile."""
        return await self._embed(texts, self._queries)

    async def _embed(self, texts: Sequence[str], threads: Runs) -> Vectors:
        vectors = np.empty((len(texts), self.dim), np.float32)
        if sum(map(len, texts)) <= _CHARS_AT_ONCE_MAX:
            rows = self._token_ids(texts)
        else:
            # In another thread than the runs, so that a call waits for the run under way once only.
            rows = await asyncio.to_thread(self._token_ids, texts)
        runs = _runs(rows)
        if len(texts) == 1:
            await self._fill(vectors, rows, runs, threads)
        else:
            lanes = (self._fill(vectors, rows, runs, threads) for _ in range(self._threads))
            await asyncio.gather(*lanes)
        return vectors

    def split(self, text: str) -> list[str]:
        """Return `text` as passages of at most 128 word pieces, the two special ones counted."""
        return self._splitter.split(text)

    def count_tokens(self, text: str) -> int:
        """Return how many word pieces `text` is."""
        return self._splitter.count(text)

    def coverage(self, text: str) -> Coverage:
        """Return what the model knows of `text`."""
        return vocabulary.measure_coverage(self._tokenizer, text)

    async def _fill(
        self,
        vectors: Vectors,
        rows: Sequence[list[int]],
        runs: Iterator[list[int]],
        threads: Runs,
    ) -> None:
        """Put the vectors of one run after the other in their places, as long as there are any."""
        for run in runs:
            part = [rows[at] for at in run]
            with time_embedding(len(part)):
                cost = sum(map(len, part))
                vectors[run] = await threads.run(cost, self._run, part)

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        first, last = self._special
        chars_max = self._content_max * _CHARS_PER_TOKEN_MAX
        return [
            # One by one, because the library's own batches start a thread per core.
            [first, *self._content(text[:chars_max]), last]
            for text in texts
        ]

    def _content(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return list(ids[: self._content_max])

    def _run(self, rows: list[list[int]]) -> Vectors:
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        (vectors,) = self._session.run(["vectors"], {"ids": ids, "mask": mask})
        return np.asarray(vectors, np.float32)


def _session_options() -> SessionOptions:
    """Return options with one thread a run: a second one would take a fifth off a run.

    Two runs beside one another are done half as soon again as one after the other by two threads
    (DECISIONS.md).
    """
    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return options


def _runs(rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield indexes of `rows`, shortest first, so that each run pads little and stays small."""
    run: list[int] = []
    for at in sorted(range(len(rows)), key=lambda at: len(rows[at])):
        if run and (len(run) + 1) * len(rows[at]) > _TOKENS_PER_RUN_MAX:
            yield run
            run = []
        run.append(at)
    if run:
        yield run
