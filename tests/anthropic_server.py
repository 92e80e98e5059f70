"""A strict stand-in for Anthropic's Messages API, in this process, on loopback.

It answers what a test says, and keeps what it was asked. A request without a key, or of another
form than the API takes, is refused and noted, so that a test can see it.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API_KEY = "zq-anthropic-key"
Block = dict[str, Any]
Answer = Callable[[Mapping[str, Any]], list[Block]]


def text(words: str) -> Block:
    """A block of an answer."""
    return {"type": "text", "text": words}


def call(name: str, arguments: Mapping[str, Any], id: str = "toolu_1") -> Block:
    """A call of a tool."""
    return {"type": "tool_use", "id": id, "name": name, "input": dict(arguments)}


def words_of(content: Any) -> str:
    """The text of a message's content, of a system prompt or of a tool's result."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(
        words_of(block.get("text") or block.get("content")) for block in blocks if block
    )


@dataclass
class AnthropicServer:
    """The stand-in: its address, what it was asked, and what was wrong with that."""

    url: str
    answer: Answer = lambda request: [text("Noted.")]
    requests: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def take(self) -> list[dict[str, Any]]:
        """Return the requests since the last time."""
        taken, self.requests = self.requests, []
        return taken


def _find_fault(path: str, headers: Mapping[str, str], body: Any) -> str | None:
    if headers.get("x-api-key") != API_KEY:
        return "no key"
    if "anthropic-version" not in {name.lower() for name in headers}:
        return "no version"
    if path.partition("?")[0] not in {"/v1/messages", "/v1/messages/count_tokens"}:
        return f"no such route: {path}"
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return "no messages"
    roles = [message["role"] for message in body["messages"]]
    if not roles or roles[0] != "user" or not set(roles) <= {"user", "assistant", "system"}:
        return f"roles: {roles}"
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scene: AnthropicServer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._send(b"", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        fault = _find_fault(self.path, dict(self.headers.items()), body)
        if fault:
            self.scene.faults.append(fault)
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": fault}}
            return self._send(json.dumps(error).encode(), "application/json", status=400)
        if "count_tokens" in self.path:
            return self._send(b'{"input_tokens": 100}', "application/json")
        self.scene.requests.append(body)
        blocks = self.scene.answer(body)
        reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        message = {
            "id": f"msg_{len(self.scene.requests)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 10},
        }
        if not body.get("stream"):
            return self._send(json.dumps(message).encode(), "application/json")
        events = "".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _stream(message)
        )
        self._send(events.encode(), "text/event-stream")

    def _send(self, data: bytes, kind: str, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _stream(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = message | {"content": [], "stop_reason": None}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        is_text = block["type"] == "text"
        empty: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block | empty}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if is_text
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 10}}
    yield {"type": "message_stop"}


@contextmanager
def anthropic_server() -> Iterator[AnthropicServer]:
    """A stand-in that runs meanwhile."""

    class Handler(_Handler):
        """Those of this server alone."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scene = AnthropicServer(f"http://127.0.0.1:{server.server_address[1]}")
        Handler.scene = scene
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield scene
        finally:
            server.shutdown()
            thread.join()
