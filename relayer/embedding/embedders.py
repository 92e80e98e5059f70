"""Texts to unit vectors, by the built-in model or by any OpenAI-compatible endpoint.

It does not own the model's files (`model.py`), the cache and the batches around an embedder
(`cache.py`), what a vector is used for, or turning it.

- Vectors are float32, (n, dim), L2-normalised and finite; an answer that is anything else counts
  as that endpoint's failure.
- A text's vector does not depend on the texts it shares a batch with.
- Texts, keys, addresses and upstream messages reach neither an error nor a log line.
"""

import asyncio
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import httpx2
import msgspec
import numpy as np
import openai
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

from relayer.embedding import model
from relayer.embedding.endpoints import Endpoint, Failure, Fallback, retry_after_s
from relayer.embedding.passages import Splitter, load_tokenizer
from relayer.embedding.runs import Runs
from relayer.errors import Unavailable
from relayer.shares import outside
from relayer.telemetry.instruments import embedding_failed
from relayer.telemetry.stages import embedding

Vectors = NDArray[np.float32]

_log = logging.getLogger(__name__)

# The model was trained on texts this short: its vectors of longer ones blur (DECISIONS.md).
_BUILTIN_PASSAGE_TOKENS: Final = 126
_BUILTIN_OVERLAP_TOKENS: Final = 16
_OVERLAP_TOKENS: Final = 32
# Larger runs are no faster per token, and a query waits for the run that is under way.
_TOKENS_PER_RUN_MAX: Final = 128
_CHARS_PER_TOKEN_MAX: Final = 128  # beyond it a text is cut before it is tokenised
_CHARS_AT_ONCE_MAX: Final = 1_000  # cutting so few takes less time than giving them to a thread

_TEXTS_PER_REQUEST_MAX: Final = 64
# At one token a byte still below the 300,000 tokens that the largest provider takes at once.
_REQUEST_BYTES_MAX: Final = 256 * 1024
_CHARS_PER_NUMBER_MAX: Final = 40  # in an answer, with room for spaces
_ANSWER_BYTES_LEAST: Final = 64 * 1024
_SPECIAL_TOKENS_MAX: Final = 8  # assumed when there is no tokenizer to ask
_NORM_MIN: Final = 1e-6
_RETRIED: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSALS: Final = frozenset({400, 413, 422})  # about the input, not about the endpoint


class Embedder(Protocol):
    """Turns texts into vectors of one model.

    Attributes:
        version: the model and how it cuts texts; what was embedded in another is out of date.
    """

    model_id: str
    dim: int
    version: str

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`, (n, dim), L2-normalised; `account` separates caches.

        A text beyond the model's limit counts with its beginning: see `split`.

        Raises:
            Unavailable: `embedder.unavailable` or `embedder.busy`.
        """
        ...

    def split(self, text: str) -> list[str]:
        """Return `text` as passages within the model's token limit, exact substrings in order."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of `text`, or a number it does not exceed."""
        ...

    def known(self, text: str) -> float:
        """Return the share of the tokens of `text` that the model knows, 0–1."""
        ...


class TextRefused(Unavailable):
    """Every endpoint refused this input: trying again will not help, leaving texts out may."""

    code = "embedder.unavailable"


class BuiltinEmbedder:
    """all-MiniLM-L6-v2 in this process; runs in a worker thread, from files and without network.

    Each run of a call is queued by itself, and short ones come first: a query waits for one run.
    """

    model_id = model.MODEL_ID
    dim = model.DIM

    def __init__(self, *, folder: Path, threads: int = 2) -> None:
        """Load the model.

        Raises:
            Unavailable: `embedder.model_missing`, `relayer model fetch` has to be run first.
        """
        model.require(folder)
        self._tokenizer = load_tokenizer(folder / model.TOKENIZER_FILE)
        self._special = self._tokenizer.encode("").ids  # what stands before and after a text
        self._content_max = model.TOKENS_MAX - len(self._special)
        self._splitter = Splitter(
            tokenizer=self._tokenizer,
            tokens_max=_BUILTIN_PASSAGE_TOKENS,
            overlap_tokens=_BUILTIN_OVERLAP_TOKENS,
        )
        self.version = f"{self.model_id} {self._splitter.name}"
        self._session = InferenceSession(
            str(folder / model.GRAPH_FILE),
            _session_options(threads),
            providers=["CPUExecutionProvider"],
        )
        self._runs = Runs()

    def close(self) -> None:
        """Wait for the run under way and end the worker thread."""
        self._runs.close()

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`, (n, dim), L2-normalised; `account` has no effect."""
        vectors = np.empty((len(texts), self.dim), np.float32)
        if sum(map(len, texts)) <= _CHARS_AT_ONCE_MAX:
            rows = self._token_ids(texts)
        else:
            # In another thread than the runs, so that a call waits for the run under way once only.
            rows = await asyncio.to_thread(self._token_ids, texts)
        for run in _runs(rows):
            part = [rows[at] for at in run]
            with embedding(len(part)):
                vectors[run] = await self._runs.run(sum(map(len, part)), self._run, part)
        return vectors

    def split(self, text: str) -> list[str]:
        """Return `text` as passages of at most 128 word pieces, the two special ones counted."""
        return self._splitter.split(text)

    def count_tokens(self, text: str) -> int:
        """Return how many word pieces `text` is."""
        return self._splitter.count(text)

    def known(self, text: str) -> float:
        """Return the share of the word pieces of `text` that the model knows, 0–1."""
        return self._splitter.known(text)

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


class OpenAIEmbedder:
    """One model behind OpenAI-compatible endpoints, which are asked in their given order.

    Without a tokenizer, `split` counts UTF-8 bytes: always within the limit, but shorter passages
    than the model could take. The number of dimensions is sent only with `request_dim`, because
    few models can choose it.
    """

    def __init__(
        self,
        *,
        endpoints: Sequence[Endpoint],
        model: str,
        dim: int,
        timeout_s: float = 20.0,
        tokens_max: int = 512,
        tokenizer_folder: Path | None = None,
        request_dim: bool = False,
    ) -> None:
        self.model_id = f"{model}/{dim}"
        self.dim = dim
        self._model = model
        self._timeout_s = timeout_s
        self._request_dim = request_dim
        self._clients = [_client(endpoint, timeout_s) for endpoint in endpoints]
        self._fallback = Fallback(clients=self._clients)
        self._splitter = _endpoint_splitter(tokenizer_folder, tokens_max)
        self.version = f"{self.model_id} {self._splitter.name}"

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()

    async def embed(self, texts: Sequence[str], *, account: bytes = b"") -> Vectors:
        """Return the vectors of `texts`, (n, dim), L2-normalised; `account` is not sent.

        Each request, of at most 64 texts, has the whole `timeout_s` for all its attempts.

        Raises:
            Unavailable: `embedder.unavailable`, no endpoint gave vectors that can be believed.
        """
        parts = [await self._requested(part) for part in _request_parts(texts)]
        return np.concatenate(parts) if parts else np.empty((0, self.dim), np.float32)

    def split(self, text: str) -> list[str]:
        """Return `text` as passages within the model's token limit, exact substrings in order."""
        return self._splitter.split(text)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens `text` has; without a tokenizer its UTF-8 bytes, never less."""
        return self._splitter.count(text)

    def known(self, text: str) -> float:
        """Return the share of the tokens of `text` that the model knows; 1 without a tokenizer."""
        return self._splitter.known(text)

    async def _requested(self, texts: list[str]) -> Vectors:
        outcome = await self._asked(texts)
        if not isinstance(outcome, Failure):
            return outcome
        embedding_failed("refused" if outcome.refused else outcome.cause)
        # Raised outside every handler, so that no upstream error is chained to it.
        _log.warning("embedder: %s", outcome.cause)
        error = TextRefused if outcome.refused else Unavailable
        raise error(
            "The embedding model is not available.",
            code="embedder.unavailable",
            retry_after_s=max(math.ceil(outcome.rest_s or 0), 1),
        )

    async def _asked(self, texts: list[str]) -> Vectors | Failure:
        async with outside():
            with embedding(len(texts)):
                return await self._fallback.ask(
                    lambda client: self._attempt(client, texts), timeout_s=self._timeout_s
                )

    async def _attempt(self, client: openai.AsyncOpenAI, texts: list[str]) -> Vectors | Failure:
        body_bytes_max = len(texts) * self.dim * _CHARS_PER_NUMBER_MAX + _ANSWER_BYTES_LEAST
        try:
            # The body is read and decoded here: the library takes any size and any shape.
            async with client.embeddings.with_streaming_response.create(
                model=self._model,
                input=texts,
                encoding_format="float",
                dimensions=self.dim if self._request_dim else openai.omit,
            ) as response:
                body = bytearray()
                async for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > body_bytes_max:
                        return Failure("answer too long")
        except openai.APIStatusError as error:
            return _status_failure(error)
        except (openai.APIConnectionError, httpx2.TransportError):
            return Failure("no connection", retry=True)
        except UnicodeError:  # a lone surrogate in a text
            return Failure("not text", refused=True)
        except (openai.OpenAIError, httpx2.HTTPError):
            return Failure("client error")
        return _vectors(bytes(body), texts=len(texts), dim=self.dim)


def _session_options(threads: int) -> SessionOptions:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    # Threads that spin for work take the processor from the event loop and from PostgreSQL.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
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


def _client(endpoint: Endpoint, timeout_s: float) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",  # local servers need none, the library insists on one
        max_retries=0,  # `Fallback` knows about deadlines and other endpoints
        timeout=timeout_s,
        # A redirect would send texts to an address that nobody configured.
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
    )


def _endpoint_splitter(folder: Path | None, tokens_max: int) -> Splitter:
    if folder is None:
        tokenizer, special = None, _SPECIAL_TOKENS_MAX
    else:
        tokenizer = load_tokenizer(folder / model.TOKENIZER_FILE)
        special = len(tokenizer.encode("").ids)
    content_max = tokens_max - special
    overlap = min(_OVERLAP_TOKENS, content_max // 8)
    return Splitter(tokenizer=tokenizer, tokens_max=content_max, overlap_tokens=overlap)


def _request_parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for text in texts:
        text_bytes = len(text.encode("utf-8", "replace"))
        full = len(part) == _TEXTS_PER_REQUEST_MAX or size + text_bytes > _REQUEST_BYTES_MAX
        if part and full:
            yield part
            part, size = [], 0
        part.append(text)
        size += text_bytes
    if part:
        yield part


def _status_failure(error: openai.APIStatusError) -> Failure:
    status = error.status_code
    return Failure(
        f"status {status}",
        retry=status in _RETRIED,
        refused=status in _REFUSALS,
        rest_s=retry_after_s(error.response.headers.get("retry-after")),
    )


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


def _vectors(body: bytes, *, texts: int, dim: int) -> Vectors | Failure:
    """Return the vectors in an answer if it is one for `texts` texts, (texts, dim)."""
    try:
        items = msgspec.json.decode(body, type=_Answer).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failure("not an answer")
    if [item.index for item in items] != list(range(texts)):
        return Failure("wrong number or order of vectors")
    if any(len(item.embedding) != dim for item in items):
        return Failure("wrong dimension")
    raw = np.array([item.embedding for item in items], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(raw, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or norms.min() < _NORM_MIN:
        return Failure("vector without direction")
    vectors: Vectors = (raw / norms).astype(np.float32)
    return vectors
