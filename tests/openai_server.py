"""A small strict OpenAI-compatible server on loopback: the stand-in for paid models.

It answers `/v1/chat/completions` and `/v1/responses`, streamed if so asked, and `/v1/embeddings`
deterministically, refuses what the real API refuses, plays scripted faults, and keeps every request
for assertions. It owns no model and not the shapes of chat completions (`openai_chat.py`) and of
responses (`openai_responses.py`).

As a context manager: `with openai_server() as server: server.base_url, server.script(...)`.
As a process: `python -m tests.openai_server --port 8123` prints one ready line and serves.
"""

import argparse
import asyncio
import base64
import hashlib
import html
import json
import math
import re
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests import openai_chat, openai_responses
from tests.accepting import close_server
from tests.openai_chat import Refused, Step, ToolCall, chunks, completion, text_of
from tests.openai_responses import ResponsesApi

__all__ = ["Step", "ToolCall", "openai_server"]

API_KEY = "test-key"
CHAT_MODEL = "test-chat"
EMBEDDING_MODEL = "test-embedding"

_EMBEDDING_FIELDS = {"dimensions", "encoding_format", "input", "model", "user"}
_UNKNOWN = "The memories do not contain it."
_JSON, _EVENTS = "application/json", "text/event-stream"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


@dataclass(frozen=True)
class Received:
    """A request as it arrived; `json` is None if the body was not JSON."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class OpenAIServer:
    """State of one server: what it accepts, what it was asked, and what it answers next."""

    def __init__(
        self,
        *,
        api_key: str | None = API_KEY,
        chat_model: str = CHAT_MODEL,
        embedding_model: str = EMBEDDING_MODEL,
        embedding_dim: int = 384,
        response_formats: tuple[str, ...] = ("text", "json_object", "json_schema"),
        refused: tuple[str, ...] = (),
    ) -> None:
        self.api_key = api_key
        self.chat_model = chat_model
        self.embedding_model = embedding_model
        self.embedding_dim = embedding_dim
        self.response_formats = response_formats
        self.responses = ResponsesApi()
        self.refused = refused
        self.received: list[Received] = []
        self.port = 0
        self.connections = 0  # that are open
        self._steps: deque[Step] = deque()

    @property
    def as_embedder(self) -> dict[str, Any]:
        """The settings of a relayer whose embedding model is here."""
        return {
            "embedding_model": EMBEDDING_MODEL,
            "embedding_dim": self.embedding_dim,
            "openai_base_url": self.base_url,
            "openai_api_key": API_KEY,
        }

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *steps: Step) -> None:
        """Answer the next valid chat requests with `steps`, one each, then as usual."""
        self._steps.extend(steps)

    @property
    def scripted_left(self) -> int:
        return len(self._steps)

    def clear(self) -> None:
        """Forget requests and scripted steps."""
        self.received.clear()
        self._steps.clear()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client closes it."""
        self.connections += 1
        try:
            while request := await _read_request(reader):
                self.received.append(request)
                if not await self._respond(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    async def _respond(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Write the answer to `request`; return whether the connection stays open."""
        try:
            step, kind, parts = self._answer(request)
        except Refused as refused:
            step, kind = Step(status=refused.status), _JSON
            error = {"message": str(refused), "type": "invalid_request_error", "code": None}
            parts = [_encoded({"error": error})]
        while step.held and not step.held.is_set():
            await asyncio.sleep(0.01)
        if step.drop:
            return False
        if not step.hang or step.cut is not None:
            await self._write(writer, step, kind, parts)
        if step.hang:
            await reader.read()  # until the client goes
            return False
        return step.cut is None

    def _answer(self, request: Received) -> tuple[Step, str, list[bytes]]:
        """Return what to do, the type of the answer, and its body: whole, or one part an event."""
        self._authorise(request)
        if request.path == "/v1/embeddings":
            return Step(), _JSON, [_encoded(self._embed(_object(request, _EMBEDDING_FIELDS)))]
        if request.path.startswith(("/v1/responses", "/v1/conversations")):
            return self._respond_to(request)
        if request.path != "/v1/chat/completions":
            raise Refused(404, "unknown route")
        asked = _object(request, openai_chat.FIELDS)
        if asked.get("model") != self.chat_model:
            raise Refused(404, "unknown model")
        openai_chat.check(asked, self.response_formats, self.refused)
        step = self._steps.popleft() if self._steps else Step(content=_answer(asked))
        if asked.get("stream") and step.status == 200 and step.body is None:
            events = [_encoded(event) for event in chunks(self.chat_model, step, asked)]
            return step, _EVENTS, [b"data: %b\n\n" % event for event in [*events, b"[DONE]"]]
        whole = completion(self.chat_model, step, asked.get("n", 1))
        return step, _JSON, [step.body or _encoded(whole)]

    def _respond_to(self, request: Received) -> tuple[Step, str, list[bytes]]:
        """Return the same for a response, or for one that was made in the background."""
        path, _, query = request.path.removeprefix("/v1").partition("?")
        if path == "/conversations" and request.method == "POST":
            return Step(), _JSON, [_encoded(self.responses.new_conversation())]
        if request.method == "GET":
            step, response = Step(), self.responses.retrieve(path.rpartition("/")[2])
            is_streamed = "stream=true" in query
        elif path == "/responses":
            asked = _object(request, set(openai_responses.FIELDS))
            self.responses.check(asked, self.chat_model)
            step = self._steps.popleft() if self._steps else Step(content=_UNKNOWN)
            response = self.responses.respond(asked, step)
            is_streamed = bool(asked.get("stream"))
        else:
            raise Refused(404, "unknown route")
        if not is_streamed or step.status != 200 or step.body is not None:
            return step, _JSON, [step.body or _encoded(response)]
        events = openai_responses.events(response)
        parts = [b"event: %b\ndata: %b\n\n" % (e["type"].encode(), _encoded(e)) for e in events]
        return step, _EVENTS, parts

    async def _write(
        self, writer: asyncio.StreamWriter, step: Step, kind: str, parts: list[bytes]
    ) -> None:
        streamed = kind == _EVENTS
        head = {"content-type": kind}
        head |= {"transfer-encoding": "chunked"} if streamed else {}
        head |= {} if streamed else {"content-length": str(len(parts[0]))}
        lines = [f"HTTP/1.1 {step.status} {_REASONS.get(step.status, 'Fault')}"]
        lines += [f"{name}: {value}" for name, value in (head | step.headers).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if not streamed:
            writer.write(parts[0][: step.cut])
        for part in parts[: step.cut] if streamed else []:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        if streamed and step.cut is None:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _authorise(self, request: Received) -> None:
        if request.method != "POST" and not request.path.startswith("/v1/responses/"):
            raise Refused(404, "unknown method")
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            raise Refused(401, "wrong API key")

    def _embed(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("model") != self.embedding_model:
            raise Refused(404, "unknown model")
        texts = asked.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not 1 <= len(texts) <= 2048:
            raise Refused(400, "input must be a text or a list of texts")
        if not all(isinstance(text, str) and text for text in texts):
            raise Refused(400, "input must not be empty")
        dim = asked.get("dimensions", self.embedding_dim)
        if not isinstance(dim, int) or not 1 <= dim <= self.embedding_dim:
            raise Refused(400, "dimensions out of range")
        form = asked.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise Refused(400, "unknown encoding_format")
        vectors = [embedding(text, dim) for text in texts]
        data = [
            {"object": "embedding", "index": n, "embedding": _base64(v) if form == "base64" else v}
            for n, v in enumerate(vectors)
        ]
        tokens = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": self.embedding_model, "data": data, "usage": usage}


def embedding(text: str, dim: int) -> list[float]:
    """Return a unit vector: hashed words with a plural "s" cut off, so shared words mean near."""
    vector = [0.0] * dim
    for word in re.findall(r"\w+", text.casefold()) or [text]:
        stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
        digest = hashlib.blake2b(stem.encode(), digest_size=8).digest()
        place = int.from_bytes(digest[:7], "big") % dim
        vector[place] += 1.0 if digest[7] & 1 else -1.0
    length = math.hypot(*vector)
    if not length:  # two words may cancel each other out
        return [1.0] + [0.0] * (dim - 1)
    return [value / length for value in vector]


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _object(request: Received, allowed: set[str]) -> dict[str, Any]:
    asked = request.json
    if not isinstance(asked, dict):
        raise Refused(400, "the body must be a JSON object")
    if unknown := set(asked) - allowed:
        raise Refused(400, f"unknown parameter: {min(unknown)}")
    return asked


def _answer(asked: dict[str, Any]) -> str:
    """Return the answer of the rules: facts for an extraction, the first memory for a question, the
    first episode for a summary, and neither procedures nor further looks."""
    prompt = "\n".join(text_of(message) for message in asked["messages"])
    user = text_of(asked["messages"][-1])
    is_question = "<question>" in user or "<conversation>" not in user
    if asked.get("response_format", {"type": "text"})["type"] == "text" and is_question:
        memories = re.findall(r"^\d+\. (.+)$", _fenced(user, "memories"), re.MULTILINE)
        return f"[1] {memories[0]}" if memories else _UNKNOWN
    wanted = asked.get("response_format", {})
    schema = wanted.get("json_schema", {}).get("name")
    if schema == "summary":
        shown = re.findall(r"^\d+\. \([\d-]+\) (.+)$", _fenced(user, "episodes"), re.MULTILINE)
        return json.dumps({"summary": shown[0]})
    if schema == "procedures":
        return json.dumps({"procedures": []})
    if schema == "looks":
        return json.dumps({"looks": []})
    if '"facts"' not in prompt and "json_schema" not in str(wanted):
        return "{}"
    return json.dumps({"facts": [_fact(text) for text in _stated(_fenced(user, "conversation"))]})


def _fenced(prompt: str, name: str) -> str:
    match = re.search(rf"<{name}>\n(.*?)\n</{name}>", prompt, re.DOTALL)
    return html.unescape(match[1]) if match else ""


def _stated(conversation: str) -> list[str]:
    """Return what follows "FACT:" on a line; without any, sentences with one of a few cues."""
    marked = re.findall(r"FACT:[ \t]*(.+)", conversation)
    if marked:
        return [text.strip() for text in marked][:20]
    sentences = re.split(r"(?<=[.!?])\s+|\n+", re.sub(r"(?m)^\d+\. ", "", conversation))
    cue = re.compile(r"\b(?:prefer|decided|deadline|remember|is|are|uses?)\b|@", re.IGNORECASE)
    return [s.strip() for s in sentences if cue.search(s) and not s.strip().endswith("?")][:20]


def _fact(text: str) -> dict[str, Any]:
    kinds = {"prefer": "preference", "decided": "decision", "deadline": "event"}
    kind = next((kind for cue, kind in kinds.items() if cue in text.lower()), "fact")
    return {
        "text": text,
        "kind": kind,
        "importance": "standard",
        "confidence": "high",
        "said_by": "user",
        "event_time": None,
    }


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    """Return the next request, or None at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


async def _serve(server: OpenAIServer, port: int, ready: Callable[[], None]) -> None:
    """Serve until cancelled; connections are handled in tasks of their own and end with it."""
    handled: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handled[task] = writer
        try:
            with suppress(asyncio.CancelledError):  # asyncio would print it at the end
                await server.handle(reader, writer)
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            del handled[task]

    listener = await asyncio.start_server(handle, "127.0.0.1", port, limit=2**20)
    server.port = listener.sockets[0].getsockname()[1]
    ready()
    try:
        await asyncio.Event().wait()
    finally:
        await close_server(listener)
        # A connection that was just accepted may be no handler's yet: only its task is known.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task, writer in handled.items():
                writer.transport.abort()
                task.cancel()
            await asyncio.wait(others, timeout=0.05)


@contextmanager
def openai_server(**options: Any) -> Iterator[OpenAIServer]:
    """Run a server in a thread on a free port; `options` are those of `OpenAIServer`."""
    server = OpenAIServer(**options)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(_serve(server, 0, ready.set))

    def run() -> None:
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        finally:
            ready.set()  # also when it could not start: the waiting thread must not hang
            loop.close()

    thread = threading.Thread(target=run, name="openai-server")
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


def main() -> None:
    """Serve in the foreground until interrupted."""
    parser = argparse.ArgumentParser(description="Strict OpenAI-compatible server for tests")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-key", default=API_KEY)
    parser.add_argument("--embedding-dim", type=int, default=384)
    options = parser.parse_args()
    server = OpenAIServer(api_key=options.api_key, embedding_dim=options.embedding_dim)

    def ready() -> None:
        print(json.dumps({"ready": server.base_url}), flush=True)

    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, options.port, ready))


if __name__ == "__main__":
    main()
