"""A server on loopback in the place of a model's provider, for programs that need one.

It owns no provider's form: who uses it says how a request is answered (`codex/`, `gemini/`).
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """An answer: events of a stream, one JSON value, or a refusal that tells why."""

    events: tuple[Mapping[str, Any], ...] = ()
    value: Any = None
    fault: str = ""

    def render(self) -> tuple[int, str, bytes]:
        """Return its status, its type and its bytes."""
        if self.fault:
            error = {"error": {"message": self.fault}}
            return 400, "application/json", json.dumps(error).encode()
        if self.value is not None:
            return 200, "application/json", json.dumps(self.value).encode()
        lines = (
            (f"event: {one['type']}\n" if "type" in one else "") + f"data: {json.dumps(one)}\n\n"
            for one in self.events
        )
        return 200, "text/event-stream", "".join(lines).encode()


Respond = Callable[[str, Mapping[str, str], Any], Reply]


@dataclass
class LoopbackModel:
    """The server: its address, what it was asked, and what was wrong with that."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def take(self) -> list[dict[str, Any]]:
        """Return what was asked since the last time."""
        taken, self.requests = self.requests, []
        return taken


@contextmanager
def loopback_model(respond: Respond) -> Iterator[LoopbackModel]:
    """A server that runs meanwhile; what it refuses is noted."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = respond(self.path, headers, body)
            if reply.fault:
                scene.faults.append(reply.fault)
            elif body is not None:
                scene.requests.append(body)
            status, kind, data = reply.render()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scene = LoopbackModel(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield scene
        finally:
            server.shutdown()
            thread.join()
