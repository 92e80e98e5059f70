"""A real relayer as its operator sees it: lines, spans at a collector, `top` in a terminal.

Not here: the same things part by part (the modules beside this one).
"""

import gzip
import http.server
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrelay.errors import NotFound
from tests.life import WAIT_S_MAX, until
from tests.processes import RunningRelayer, client, create_account, running_relayer

TOKEN = "0123456789abcdef-operator"
MARKED = ("zqtext", "zqname", "zqtag", "zqquery")


@dataclass
class Collector:
    """What an OTLP collector was sent: paths and bodies, unpacked."""

    url: str = ""
    paths: set[str] = field(default_factory=set)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def all(self) -> bytes:
        return b"".join(self.bodies)


@contextmanager
def collector() -> Iterator[Collector]:
    """One on loopback that takes everything."""
    told = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            told.bodies.append(gzip.decompress(body) if packed else body)
            told.paths.add(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Watched:
    """A relayer that was used a little, what its collector got, and a refusal that it gave."""

    relayer: RunningRelayer
    told: Collector
    account: dict[str, Any]
    refusal: NotFound


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with collector() as told:
        environment = {
            "RELAYER_METRICS_TOKEN": TOKEN,
            "OTEL_EXPORTER_OTLP_ENDPOINT": told.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        with running_relayer(folder, model_dir, **environment) as relayer:
            account = create_account(relayer, "managed")
            with client(account, relayer.url) as memory:
                memory.remember("zqtext", namespace="zqname", tags=["zqtag"])
                assert memory.recall("zqquery zqtext", namespace="zqname")
                with pytest.raises(NotFound) as refusal:
                    memory.get("7f9c24e8-0000-4000-8000-000000000000")
            yield Watched(relayer, told, account, refusal.value)


def said(relayer: RunningRelayer, **members: str) -> list[dict[str, Any]]:
    """The whole lines of the log that have these members."""
    whole = relayer.log.read_text().rpartition("\n")[0].splitlines()
    found = [json.loads(line) for line in whole if line.startswith("{")]
    return [line for line in found if members.items() <= line.items()]


def test_a_user_can_quote_what_the_operator_finds(watched: Watched) -> None:
    """From the client's error to the relayer's line; and the job behind an acknowledged write."""
    quoted = watched.refusal.request_id
    assert quoted
    assert f"request {quoted}" in str(watched.refusal)
    until(lambda: bool(said(watched.relayer, request_id=quoted)), "the line is written")
    [line] = said(watched.relayer, request_id=quoted)
    assert (line["route"], line["status"]) == ("/v1/memories/{memory_id}", 404)
    until(
        lambda: bool(said(watched.relayer, event="jobs.run", kind="embed", outcome="done")),
        "the job is done",
    )


def test_spans_arrive_and_say_nothing_of_a_tenant(watched: Watched) -> None:
    names = (b"POST /v1/recall", b"recall.search", b"remember.write", b"embedding", b"job embed")
    until(lambda: all(name in watched.told.all for name in names), "they are sent")
    whole, account = watched.told.all, watched.account
    assert watched.told.paths == {"/v1/traces"}
    assert b"memrelay-relayer" in whole
    raw = [bytes.fromhex(account["account_id"][2:]), bytes.fromhex(account["public_key"])]
    hexed = [account["account_id"][2:].encode(), account["public_key"].encode()]
    secret = [*(word.encode() for word in MARKED), *raw, *hexed, account["private_key"].encode()]
    assert [word for word in secret if word in whole] == []
    assert b"SELECT" not in whole


def test_top_finds_the_relayer_of_its_folder(watched: Watched) -> None:
    told: dict[str, Any] = {}

    def ready() -> bool:
        with suppress(subprocess.CalledProcessError):  # it gives up on a relayer that is slow
            told.update(watched.relayer.command("top"))  # with --json and the environment's token
        return told.get("write_ready") is True

    until(ready, "its database answers in time")
    counts = {r["group"]: r["count"] for r in told["requests"]}
    assert min(counts["recall"], counts["remember"]) >= 1
    assert {s["stage"]: s["count"] for s in told["stages"]}["recall.whole"] >= 1
    refused = httpx.get(f"{watched.relayer.url}/metrics")
    assert refused.status_code == 403


def test_top_gives_the_terminal_back_on_ctrl_c(watched: Watched) -> None:
    """Two screens, then an interrupt: the cursor and the old screen are back, exit code 0."""
    shown = b""

    def interrupted() -> bool:
        nonlocal shown
        with suppress(OSError):  # it gave up on a relayer that is slow, before its first screen
            shown = shown_until_interrupted(watched.relayer)
        return bool(shown)

    until(interrupted, "the relayer answers in time")
    assert shown.startswith(b"\x1b[?1049h\x1b[?25l")
    assert b"since it began" in shown
    assert shown.rstrip(b"\r\n").endswith(b"\x1b[?25h\x1b[?1049l")


def shown_until_interrupted(relayer: RunningRelayer) -> bytes:
    """All that `top` shows in a wide terminal; OSError if it ends by itself."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "relayer", "top", "--data-dir", str(relayer.data_dir)]
    process = subprocess.Popen(
        command,
        env=relayer.environment | {"COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        shown = read_until(ours, b"\x1b[J", times=2)
        process.send_signal(signal.SIGINT)
        shown += read_until(ours, b"\x1b[?1049l")
        assert process.wait(timeout=WAIT_S_MAX) == 0
        return shown
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, wanted: bytes, *, times: int = 1) -> bytes:
    """What a program shows until it has shown this so often."""
    shown, deadline = b"", time.monotonic() + WAIT_S_MAX
    while shown.count(wanted) < times:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 65_536)
    return shown
