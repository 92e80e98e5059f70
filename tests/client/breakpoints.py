"""A passage to a relayer that stops at one request, and commands that are killed there."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Event, Thread

import httpx

from tests.client.agents_scene import Machine

COMMAND_S_MAX = 60


class Breakpoint(ThreadingHTTPServer):
    """Stands before a relayer and stops at one request, before or after it is carried out."""

    daemon_threads = True

    def __init__(self, upstream: str, path: str, *, after: bool, method: str, passed: int) -> None:
        super().__init__(("127.0.0.1", 0), Passage)
        self.passed = passed  # as many of such requests are not stopped before it
        self.upstream, self.path, self.after, self.method = upstream, path, after, method
        self.reached, self.released = Event(), Event()
        self.requests: SimpleQueue[tuple[str, str]] = SimpleQueue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.reached.set()
        self.released.wait(COMMAND_S_MAX)


class Passage(BaseHTTPRequestHandler):
    """Passes a request on, unless it is the one to stop at."""

    server: Breakpoint

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        point = self.server
        point.requests.put((self.command, self.path))
        here = (self.command, self.path) == (point.method, point.path)
        stops = here and not point.reached.is_set() and point.passed == 0
        point.passed -= here
        if stops and not point.after:
            return point.stop()
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        answer = httpx.request(
            self.command, point.upstream + self.path, content=body, headers=headers
        )
        if stops:
            return point.stop()
        self.send_response(answer.status_code)
        for name in ("content-type", "date"):
            self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = _pass

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def breakpoint_at(
    upstream: str, path: str, *, after: bool, method: str = "POST", passed: int = 0
) -> Iterator[Breakpoint]:
    with Breakpoint(upstream, path, after=after, method=method, passed=passed) as point:
        thread = Thread(target=point.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield point
        finally:
            point.released.set()
            point.shutdown()
            thread.join()


def killed_at(machine: Machine, point: Breakpoint, *argv: str) -> None:
    """Run a command and kill it when the breakpoint is reached."""
    with machine.process(*argv) as process:
        try:
            assert point.reached.wait(COMMAND_S_MAX)
        finally:
            process.kill()
            process.wait()
