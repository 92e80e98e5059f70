"""Commands on agents, killed at any request or run side by side: the next one finishes it."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Event, Thread

import httpx
import pytest

from tests.client.agents_scene import Machine, grants, machine

__all__ = ["machine"]  # fixtures

COMMAND_S_MAX = 60


class Breakpoint(ThreadingHTTPServer):
    """Stands before a relayer and stops at one request, before or after it is carried out."""

    daemon_threads = True

    def __init__(self, upstream: str, path: str, *, after: bool, method: str) -> None:
        super().__init__(("127.0.0.1", 0), Passage)
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
        stops = here and not point.reached.is_set()
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
    upstream: str, path: str, *, after: bool, method: str = "POST"
) -> Iterator[Breakpoint]:
    with Breakpoint(upstream, path, after=after, method=method) as point:
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


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_provisioning_killed_at_the_grant_is_finished_by_the_next(machine, after):
    with breakpoint_at(machine.url, "/v1/grants", after=after) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "provision", "coder", "--shared", "team")
        (pending,) = machine.folder.glob("coder*")
        assert stat.S_IMODE(pending.stat().st_mode) == 0o600
        planned = json.loads(pending.read_text())["profile"]["private_key"]
        assert len(machine.keys("coder")) == after
        agent = machine.provision("coder", "--shared", "team")
        assert agent["state"] == "created"
        assert machine.settings("coder").private_key == planned
        assert machine.live("coder") == [agent["public_key"]]
        assert len(grants(machine, agent["public_key"])) == 1
        assert not pending.exists()
        machine.run("remember", "alive", "--agent", "coder")


@pytest.mark.parametrize(
    ("path", "after", "next_command"),
    [
        ("/v1/grants", False, "rotate"),
        ("/v1/grants", True, "provision"),
        ("/v1/revocations", False, "provision"),
        ("/v1/revocations", True, "rotate"),
    ],
)
def test_a_rotation_killed_anywhere_is_finished_by_the_next(machine, path, after, next_command):
    old = machine.provision("coder", "--shared", "team")
    with breakpoint_at(machine.url, path, after=after) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        with machine.client("coder") as client:
            client.remember("there is always a key that works")
        if next_command == "rotate":
            agent = machine.json("agents", "rotate", "coder")
        else:
            agent = machine.provision("coder")
        assert agent["state"] == "rotated"
        assert agent["grants"] == old["grants"]
        assert machine.live("coder") == [agent["public_key"]] != [old["public_key"]]
        assert len(machine.keys("coder")) == 2
        assert len(grants(machine, agent["public_key"])) == 1
        assert not list(machine.folder.glob("*.pending"))
        machine.run("remember", "alive", "--agent", "coder")


def test_two_at_once_make_one_key(machine):
    with breakpoint_at(machine.url, "/v1/keys", after=True, method="GET") as point:
        machine.environ["MEMRELAY_URL"] = point.url
        argv = ("agents", "provision", "coder", "--shared", "team")
        with machine.process(*argv) as one:
            # It has seen that there is no plan, and has not made its own.
            assert point.reached.wait(COMMAND_S_MAX)
            while not point.requests.empty():
                point.requests.get()
            with machine.process(*argv) as other:
                point.requests.get(timeout=COMMAND_S_MAX)
                point.released.set()
        assert (one.returncode, other.returncode) == (0, 0)
        assert machine.live("coder") == [machine.settings("coder").public_key]
        assert len(machine.keys("coder")) == 1
        assert len(grants(machine, machine.settings("coder").public_key)) == 1


def test_what_is_there_is_looked_up_once_for_all(machine):
    names = ("a1", "b2", "c3")
    machine.run("agents", "provision", *names)
    with breakpoint_at(machine.url, "", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        asked = []
        for chosen in (names[:1], names):
            machine.run("agents", "provision", *chosen)
            asked.append([point.requests.get() for _ in range(point.requests.qsize())])
    assert asked[0] == asked[1]
    assert ("GET", "/v1/grants") in asked[0]


def test_a_plan_whose_key_was_revoked_is_dropped(machine):
    with breakpoint_at(machine.url, "/v1/grants", after=True) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "provision", "coder")
    machine.environ.pop("MEMRELAY_URL")
    (planned,) = machine.live("coder")
    machine.run("keys", "revoke", planned)
    agent = machine.provision("coder")
    assert machine.live("coder") == [agent["public_key"]] != [planned]
    assert len(grants(machine, planned)) == 1
    assert not list(machine.folder.glob("*.pending"))


def test_revoking_ends_what_a_killed_rotation_left_under_another_label(machine):
    path = machine.folder / "coder.json"
    machine.run("keys", "add", "--namespace", "coder", "--label", "laptop", "--out", str(path))
    (old,) = machine.live("laptop")
    with breakpoint_at(machine.url, "/v1/revocations", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        assert machine.live("laptop") == [old]
        machine.run("agents", "revoke", "coder")
        assert machine.live("laptop") == machine.live("coder") == []


def test_revoking_ends_what_a_killed_rotation_left(machine):
    machine.run("agents", "provision", "coder")
    with breakpoint_at(machine.url, "/v1/revocations", after=False) as point:
        machine.environ["MEMRELAY_URL"] = point.url
        killed_at(machine, point, "agents", "rotate", "coder")
        assert len(machine.live("coder")) == 2
        machine.run("agents", "revoke", "coder")
        assert machine.live("coder") == []
        assert [path.name for path in machine.folder.glob("coder.json*")] == ["coder.json.revoked"]
