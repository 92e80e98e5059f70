"""Log lines say which request or job they are of, from the client's own id to its error.

Not here: what no line ever holds (`test_secrecy.py`), lines of a real process (`test_whole.py`).
"""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from litestar.types import ASGIApp

from relayer.app import build_app
from relayer.logs import JsonFormatter
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.telemetry import tracing
from relayer.telemetry.work import observe
from relayer.upkeep.provision import NewKey
from tests.signing import client_of, signer_of, well_formed

HTTP: Any = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "scheme": "http",
    "server": ("127.0.0.1", 8000),
    "client": ("127.0.0.1", 50_000),
    "root_path": "",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@contextmanager
def lines(logger: str) -> Iterator[list[dict[str, Any]]]:
    """What is logged meanwhile, as it would be written."""
    stream, found = io.StringIO(), list[dict[str, Any]]()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger(logger)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        found += map(json.loads, stream.getvalue().splitlines())


OWN = ["abcdefgh", "A-z_0-9x", "0" * 64, "7f9c24e8-0000-4000-8000-000000000000"]
OTHERS = [
    *("", "seven77", "0" * 65, "x" * 9_000, "has a space", "semi;colon1", 'quote"quote'),
    *("ünïcödé-id", "new\tline1", "seven77\x1b[2J"),
]


@dataclass
class Sealed:
    """What prints without what is in it."""

    name: str
    key: bytes = field(repr=False)


def test_a_line_holds_an_objects_own_words_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("relayer.test")
    monkeypatch.setattr(log, "propagate", False)  # half a character is nothing for the test runner
    with lines("relayer.test") as found:
        log.info(
            "half \ud800",
            extra={"what": Sealed("a", b"topsecret"), "these": [b"raw", 1, None], "of": {2: True}},
        )
    [line] = found
    assert line["message"] == "half \\ud800"
    assert line["what"] == "Sealed(name='a')"
    assert (line["these"], line["of"]) == (["b'raw'", 1, None], {"2": True})


MUTE = """
import logging
from relayer.logs import configure

class Mute:
    def __str__(self):
        raise ValueError("secret")

configure("info")
logging.getLogger("relayer.test").info("said", extra={"what": Mute(), "other": "secret"})
logging.getLogger("relayer.test").info("said")
"""


def test_what_no_line_can_hold_is_not_printed_otherwise() -> None:
    done = subprocess.run([sys.executable, "-c", MUTE], capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    assert json.loads(line)["message"] == "said"


async def test_a_clients_own_id_is_kept(app: ASGIApp) -> None:
    for sent in OWN:
        with lines("relayer.http") as found:
            async with client_of(app) as client:
                answer = await client.get("/v1/keys", headers={"x-request-id": sent})
        assert answer.headers["x-request-id"] == answer.json()["request_id"] == sent
        assert [line["request_id"] for line in found if line["event"] == "http.request"] == [sent]


async def test_any_other_is_replaced(app: ASGIApp) -> None:
    for sent in OTHERS:
        with lines("relayer.http") as found:
            async with client_of(app) as client:
                answer = await client.get("/v1/keys", headers={b"x-request-id": sent.encode()})
        told = answer.headers["x-request-id"]
        assert UUID.fullmatch(told), sent
        assert answer.json()["request_id"] == told
        assert [line["request_id"] for line in found] == [told]
        assert sent == "" or sent not in json.dumps(found, ensure_ascii=False)


async def test_a_method_that_no_route_has_is_not_quoted(app: ASGIApp) -> None:
    with lines("relayer.http") as found:
        async with client_of(app) as client:
            for method in ("ZQNAME", "GET"):
                await client.request(method, "/version")
    assert [line["method"] for line in found] == ["other", "GET"]


async def test_of_two_ids_none_is_believed(app: ASGIApp) -> None:
    sent = [("x-request-id", "first-id-1"), ("x-request-id", "second-id-2")]
    async with client_of(app) as client:
        answer = await client.get("/v1/keys", headers=sent)
    assert UUID.fullmatch(answer.headers["x-request-id"])


async def test_every_line_of_a_request_has_its_id(
    storage: Storage, settings: Settings, managed: NewKey
) -> None:
    """A job's line says which it is; the line of the request that queued it says so, too."""
    body = {"text": "Anna prefers tea.", "relayer": storage.identity.public_key.hex()}
    app = build_app(storage, settings)
    with lines("relayer") as found:
        async with client_of(app, signer_of(managed)) as client:
            await client.post("/v1/remember", json=body, headers={"x-request-id": "request-one"})
            await client.get("/v1/memories/none", headers={"x-request-id": "request-two"})
    events = [(line.get("event"), line.get("request_id")) for line in found]
    assert ("http.request", "request-one") in events
    assert ("http.request", "request-two") in events
    queued = [line for line in found if line.get("request_id") == "request-one" and "kind" in line]
    assert [(line["event"], line["kind"]) for line in queued] == [("jobs.queued", "embed")]
    assert isinstance(queued[0]["job_id"], int)
    routes = {
        line["request_id"]: line["route"] for line in found if line.get("event") == "http.request"
    }
    assert routes["request-one"] == "/v1/remember"
    assert routes["request-two"] == "/v1/memories/{memory_id}"
    assert tracing.REQUEST.get() is None, "nothing of it is left behind"


async def test_a_refused_request_says_by_which_code_and_cause(
    storage: Storage, settings: Settings, managed: NewKey
) -> None:
    """One line is enough to see what is away, and why."""
    app = build_app(storage, settings)
    with lines("relayer.http") as found:
        async with client_of(app, signer_of(managed)) as client:
            await client.get("/version")
            await client.get("/v1/nowhere")
            await storage.database.close()
            await client.get("/v1/keys")
    told = [(line["status"], line.get("code"), line.get("cause")) for line in found]
    assert told == [
        (200, None, None),
        (404, "route.unknown", None),
        (503, "database.unavailable", "InterfaceError"),
    ]


async def test_a_bug_has_the_id_that_its_answer_has(
    app: ASGIApp, storage: Storage, managed: NewKey
) -> None:
    await storage.database.execute("ALTER TABLE namespaces RENAME TO hidden")
    with lines("relayer.http") as found:
        async with client_of(app, signer_of(managed)) as client:
            answer = await client.get("/v1/namespaces")
    [bug] = [line for line in found if line["event"] == "http.bug"]
    assert bug["request_id"] == answer.json()["request_id"] == answer.headers["x-request-id"]
    assert set(bug["exception"]) == {"type", "at"}


async def test_whoever_hangs_up_within_a_body_is_no_bug(app: ASGIApp) -> None:
    """Networks are poor, and anybody can: it neither fills the log nor counts as a failure."""
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Any:
        return next(parts, {"type": "http.disconnect"})

    statuses = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(name.encode(), value.encode()) for name, value in well_formed().items()]
    scope = HTTP | {"method": "POST", "path": "/v1/recall", "raw_path": b"/v1/recall"}
    with lines("relayer.http") as found:
        await app(scope | {"headers": headers}, receive, send)
    assert statuses[0] == 400
    assert [(line["event"], line["code"]) for line in found] == [
        ("http.request", "request.unfinished")
    ]


@dataclass(frozen=True)
class _Job:
    id: int


async def test_what_a_job_says_has_its_number() -> None:
    async def work(_: _Job) -> None:
        logging.getLogger("relayer.jobs").info("at work", extra={"event": "of.a.test"})

    with lines("relayer.jobs") as found:
        await observe("of a test", work, put_back=TimeoutError)(_Job(41))
        logging.getLogger("relayer.jobs").info("afterwards", extra={"event": "of.a.test"})
    first, after = (line for line in found if line["event"] == "of.a.test")
    [run] = [line for line in found if line.get("kind") == "of a test"]
    assert (first["job_id"], run["job_id"]) == (41, 41)
    assert (run["event"], run["outcome"]) == ("jobs.run", "done")
    assert "job_id" not in after


TOLD = """
import logging, sys
from relayer.logs import configure, tell

configure(sys.argv[1])
log = logging.getLogger("relayer.test")
members = {"event": "test", "ms": 0.5, "route": "/caf\\u00e9\\ud800", "sent": b"secret"}
log.info("said", extra=members)
tell(log, "said", members)
sys.stderr.close()
tell(log, "said", members)
print("went on")
"""


@pytest.mark.parametrize(("level", "lines"), [("info", 2), ("warning", 0)])
def test_a_line_without_a_record_is_as_one_with(level: str, lines: int) -> None:
    command = [sys.executable, "-c", TOLD, level]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "went on\n", "a line that cannot be written fails nobody"
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(found) == lines
    assert len({json.dumps({**line, "time": ""}) for line in found}) == min(lines, 1)


HEARD = """
import logging, sys
from relayer.logs import configure, tell

configure("info")
logging.getLogger(sys.argv[1]).addHandler(logging.StreamHandler(sys.stdout))
tell(logging.getLogger("relayer.test"), "said", {})
"""


@pytest.mark.parametrize("logger", ["", "relayer", "relayer.test"])
def test_whoever_else_listens_hears_a_line_without_a_record_too(logger: str) -> None:
    command = [sys.executable, "-c", HEARD, logger]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "said\n"
    assert json.loads(done.stderr)["message"] == "said"
