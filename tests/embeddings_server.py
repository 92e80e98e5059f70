"""A small strict embeddings endpoint on loopback, with faults by script.

It checks what it is sent more closely than real ones do, and fails the request with 418 (a status
no client of ours treats as anything but a failure) if something is off, noting it in `complaints`.
"""

import asyncio
import base64
import hashlib
import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from tests.accepting import close_server

MODEL = "tiny-embedder"
DIM = 6
KEY = "sk-loopback"

_JSON = "content-type: application/json"
_FIELDS = {"model", "input", "encoding_format", "dimensions"}


def vector(text: str, model: str = MODEL, dim: int = DIM) -> list[float]:
    """Return a model's vector of `text`; not of unit length, like many models'."""
    seed = hashlib.blake2b(text.encode(), digest_size=8, key=model.encode()).digest()
    generator = np.random.default_rng(int.from_bytes(seed, "big"))
    return [float(x) for x in generator.normal(size=dim) * 3]


def unit(text: str, model: str = MODEL, dim: int = DIM) -> npt.NDArray[np.float64]:
    """Return the same vector at length 1."""
    values = np.array(vector(text, model, dim))
    return np.asarray(values / np.linalg.norm(values))


def _answer(texts: list[str], model: str = MODEL, dim: int = DIM) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": n, "embedding": vector(text, model, dim)}
        for n, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


def _with_first(first: list[object]) -> Callable[[list[dict[str, Any]]], None]:
    """Return an alteration that puts `first` in front of the first vector's other numbers."""

    def alter(data: list[dict[str, Any]]) -> None:
        data[0]["embedding"] = first + data[0]["embedding"][len(first) :]

    return alter


# What may come with status 200 and must not be believed.
_ALTERATIONS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "short": lambda data: data.pop(),
    "empty": lambda data: data.clear(),
    "surplus": lambda data: data.append({**data[0], "index": len(data)}),
    "same-index": lambda data: data[-1].update(index=0),
    "lacks-one-index": lambda data: data[0].pop("index"),
    "index-with-a-gap": lambda data: data[-1].update(index=7),
    "index-of-words": lambda data: [item.update(index="first") for item in data],
    "not-base64": lambda data: data[0].update(embedding="§§"),
    "base64-cut": lambda data: data[0].update(embedding=_base64(data[0]["embedding"])[:-4]),
    "matrix": lambda data: data[0].update(embedding=[data[0]["embedding"]] * 2),
    "narrow": lambda data: data[0]["embedding"].pop(),
    "wide": lambda data: data[0]["embedding"].append(0.5),
    "zero": _with_first([0.0] * DIM),
    "huge": _with_first([1e308, 1e308]),
    "null": _with_first([None]),
    "nan": _with_first([math.nan]),
    "infinite": _with_first([math.inf]),
    "text-numbers": _with_first(["0.5"]),
    "too-large-to-read": _with_first([10**400]),
}
# What says the same in other words, as endpoints of some makers do.
_SPELLINGS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "reversed": lambda data: data.reverse(),
    "without-index": lambda data: [item.pop("index") for item in data],
    "null-index": lambda data: [item.update(index=None) for item in data],
    "zero-index": lambda data: [item.update(index=0) for item in data],
    "index-from-one": lambda data: [item.update(index=item["index"] + 1) for item in data],
    "rounded": lambda data: [
        item.update(embedding=[round(1e6 * number) for number in item["embedding"]])
        for item in data
    ],
    "base64": lambda data: [item.update(embedding=_base64(item["embedding"])) for item in data],
    "nested": lambda data: [item.update(embedding=[item["embedding"]]) for item in data],
}
SPELLED = [*_SPELLINGS, "bare-list", "embeddings"]
_BODIES = {
    "garbage": b"\xff\xfe<html>not what was asked for",
    "nothing": b"",
    "other-json": b'{"result": "fine"}',
    "error": b'{"error": {"message": "overloaded"}, "data": null}',
    "deep": b"[" * 100_000,
}
ALTERED = [*_ALTERATIONS, *_BODIES]


def _altered(fault: str, texts: list[str]) -> bytes:
    if fault in _BODIES:
        return _BODIES[fault]
    answer = _answer(texts)
    if fault == "bare-list":
        return json.dumps(answer["data"]).encode()
    if fault == "embeddings":
        return json.dumps({fault: [item["embedding"] for item in answer["data"]]}).encode()
    (_ALTERATIONS | _SPELLINGS)[fault](answer["data"])
    return json.dumps(answer).encode()


@dataclass
class Taste:
    """What an endpoint refuses with `status`, or does of itself, though others do not."""

    is_bare: bool = False  # nothing but the model and the texts
    is_single: bool = False  # one text, and no list
    texts_max: int | None = None
    characters_max: int | None = None  # of all texts of a request
    own_dim: int | None = None  # of the model's vectors, unless another one is asked for
    status: int = 400

    def refuses(self, document: dict[str, Any], texts: list[str]) -> bool:
        wanted = (
            not self.is_bare or set(document) == {"model", "input"},
            not self.is_single or isinstance(document["input"], str),
            self.texts_max is None or len(texts) <= self.texts_max,
            self.characters_max is None or len("".join(texts)) <= self.characters_max,
        )
        return not all(wanted)


class EmbeddingsServer:
    """Use as an async context manager; `script` holds the faults of the next requests."""

    def __init__(
        self,
        *,
        refuse: str | None = None,
        models: dict[str, int] | None = None,
        taste: Taste | None = None,
    ) -> None:
        self.script: deque[str] = deque()
        self.always: str | None = None
        self.requests: list[list[str]] = []
        self.bodies: list[dict[str, object]] = []
        self.complaints: list[str] = []
        self.moved_to = ""
        self.asked = asyncio.Event()
        self.endless_bytes = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.models = models or {MODEL: DIM}
        self.gone: set[str] = set()  # models that are not served any more
        self.refuse = refuse
        self.taste = taste or Taste()
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._exchange(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        line, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (entry.partition(":") for entry in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        complaint = _complaint(line, headers, body, self.models)
        if complaint:
            self.complaints.append(complaint)
            await self._send(writer, 418, b"{}")
            return
        document = json.loads(body)
        self.bodies.append(document)
        texts = [document["input"]] if isinstance(document["input"], str) else document["input"]
        self.requests.append(texts)
        self.asked.set()
        await self.hold.wait()
        await self._reply(writer, self._fault(document, texts), document, texts)

    def _fault(self, document: dict[str, Any], texts: list[str]) -> str | None:
        if document["model"] in self.gone:
            return "404"
        if self.taste.refuses(document, texts):
            return str(self.taste.status)
        if self.refuse is not None and any(self.refuse in text for text in texts):
            return str(self.taste.status)
        return self.script.popleft() if self.script else self.always

    async def _reply(
        self,
        writer: asyncio.StreamWriter,
        fault: str | None,
        document: dict[str, Any],
        texts: list[str],
    ) -> None:
        if fault is None:
            model = document["model"]
            dim = self.taste.own_dim if "dimensions" not in document else None
            answer = _answer(texts, model, dim or self.models[model])
            await self._send(writer, 200, json.dumps(answer).encode())
        elif fault == "hang":
            await asyncio.Event().wait()
        elif fault == "not-gzip":
            await self._send(writer, 200, b"no archive", "content-encoding: gzip")
        elif fault == "disconnect":
            writer.transport.abort()
        elif fault == "cut":
            whole = json.dumps(_answer(texts)).encode()
            await self._send(writer, 200, whole[: len(whole) // 2], length=len(whole))
        elif fault == "trickle":
            await self._send(writer, 200, b"{", length=100)
            await asyncio.Event().wait()
        elif fault == "endless":
            await self._endless(writer)
        elif fault == "moved":
            await self._send(writer, 307, b"", f"location: {self.moved_to}/embeddings")
        elif fault[:3].isdigit():  # a status, and a Retry-After after a comma
            status, _, after = fault.partition(",")
            echo = json.dumps({"error": {"message": f"cannot embed: {texts}"}}).encode()
            await self._send(writer, int(status), echo, f"retry-after: {after}" if after else _JSON)
        else:
            await self._send(writer, 200, _altered(fault, texts))

    async def _endless(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[")
        while True:
            writer.write(b"1.0," * 4096)
            await writer.drain()
            self.endless_bytes += 4 * 4096

    @staticmethod
    async def _send(
        writer: asyncio.StreamWriter,
        status: int,
        body: bytes,
        header: str = _JSON,
        *,
        length: int | None = None,
    ) -> None:
        size = len(body) if length is None else length
        head = f"HTTP/1.1 {status} Word\r\n{header}\r\ncontent-length: {size}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()


def _complaint(
    line: str, headers: dict[str, str], body: bytes, models: dict[str, int]
) -> str | None:
    """What is wrong with a request, or None."""
    document = json.loads(body)
    given, dim = document["input"], models.get(document.get("model"))
    texts = [given] if isinstance(given, str) else given
    wanted = {
        "request line": line == "POST /v1/embeddings HTTP/1.1",
        "key": headers.get("authorization") == f"Bearer {KEY}",
        "fields": {"model", "input"} <= set(document) <= _FIELDS,
        "model": dim is not None,
        "format": document.get("encoding_format", "float") == "float",
        "dimensions": document.get("dimensions", dim) == dim,
        "number of texts": isinstance(texts, list) and 1 <= len(texts) <= 64,
        "texts": all(isinstance(text, str) and text for text in texts),
    }
    return next((name for name, right in wanted.items() if not right), None)


def embedder_of(*servers: EmbeddingsServer, timeout_s: float = 20.0) -> OpenAIEmbedder:
    """What asks these, one after the other."""
    return OpenAIEmbedder(
        endpoints=[Endpoint(server.url, KEY) for server in servers],
        model=MODEL,
        dim=DIM,
        timeout_s=timeout_s,
    )


def assert_vectors_of(vectors: object, texts: list[str]) -> None:
    assert isinstance(vectors, np.ndarray)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [unit(text) for text in texts], atol=1e-6)
