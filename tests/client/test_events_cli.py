"""The client's side of events: reading a stream, believing a webhook, and the commands for both."""

import asyncio
import base64
import hashlib
import hmac
import io
import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memrelay import (
    ConfigError,
    Invalid,
    MemrelayError,
    NotAllowed,
    RateLimited,
    TransportError,
)
from memrelay.answers import make_malformed_error
from memrelay.cli import main
from memrelay.events import PAUSE_S_MIN, EventReader
from memrelay.local_time import when
from memrelay.webhooks import EVENTS, verify
from relayer.events.event import TYPES
from tests.conftest import TestDatabase
from tests.hooks import Hook, listening
from tests.processes import running_relayer

NAME = str(uuid.UUID(int=5))
EVENT = {
    "id": NAME,
    "type": "memory.written",
    "account_id": "0x" + "00" * 32,
    "time": "2026-11-22T08:00:00.000Z",
    "namespace": "team",
    "ids": [NAME],
    "receipt_seq": 3,
}
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NOW = 1_800_000_000


def signed(body: bytes, *, name: str = NAME, seconds: str = str(NOW)) -> dict[str, str]:
    text = f"{name}.{seconds}.".encode() + body
    digest = hmac.new(bytes(range(32)), text, hashlib.sha256).digest()
    return {
        "Webhook-Id": name,
        "Webhook-Timestamp": seconds,
        "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
    }


BODY = json.dumps(EVENT).encode()
OTHER_SCHEME = signed(BODY)["Webhook-Signature"].removeprefix("v1")


class TestVerify:
    @pytest.mark.parametrize("off_s", [0, 299, -299])
    def test_a_webhook_of_this_secret_and_minute_is_believed(self, off_s: int) -> None:
        event = verify(signed(BODY), BODY, SECRET, now_s=NOW + off_s)
        assert (event.type, event.ids, event.receipt_seq) == ("memory.written", (NAME,), 3)

    def test_one_of_several_signatures_is_enough(self) -> None:
        headers = signed(BODY)
        headers["Webhook-Signature"] = f"v1,AAAA v2,BBBB {headers['Webhook-Signature']}"
        assert verify(headers, BODY, SECRET, now_s=NOW).id == NAME

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"Webhook-Id": str(uuid.UUID(int=6))}, "webhook.signature"),
            ({"Webhook-Timestamp": str(NOW + 1)}, "webhook.signature"),
            ({"Webhook-Signature": "v1,AAAA"}, "webhook.signature"),
            ({"Webhook-Signature": f"v2{OTHER_SCHEME}"}, "webhook.signature"),
            ({"Webhook-Signature": ""}, "webhook.headers"),
            ({"Webhook-Signature": "v1,é"}, "webhook.headers"),
            ({"Webhook-Id": ""}, "webhook.headers"),
            (signed(BODY, seconds=str(NOW - 301)), "webhook.time"),
            (signed(BODY, seconds=str(NOW + 301)), "webhook.time"),
            (signed(BODY, seconds="now"), "webhook.time"),
            (signed(BODY, name=str(uuid.UUID(int=6))), "webhook.body"),
        ],
    )  # fmt: skip
    def test_any_other_is_not(self, change: dict[str, str], code: str) -> None:
        with pytest.raises(Invalid) as refusal:
            verify(signed(BODY) | change, BODY, SECRET, now_s=NOW)
        assert refusal.value.code == code

    @pytest.mark.parametrize("body", [BODY + b" ", b"", b"{}"])
    def test_nor_is_another_body(self, body: bytes) -> None:
        with pytest.raises(Invalid):
            verify(signed(BODY), body, SECRET, now_s=NOW)

    @pytest.mark.parametrize("body", [b"", b"\xff", b"[" * 100_000, b"{}", b"[]", b'{"id": 5}'])
    def test_what_is_no_event_is_said_to_be_none(self, body: bytes) -> None:
        with pytest.raises(Invalid) as refusal:
            verify(signed(body), body, SECRET, now_s=NOW)
        assert refusal.value.code == "webhook.body"

    @pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "not base64!"])
    def test_a_secret_that_is_none_signs_for_nobody(self, secret: str) -> None:
        with pytest.raises(ConfigError):
            verify(signed(BODY), BODY, secret, now_s=NOW)


class TestReader:
    def lines(self, *lines: str) -> tuple[EventReader, list[Any]]:
        reader = EventReader(None)
        reader.request()
        return reader, [event for line in lines if (event := reader.take(line)) is not None]

    def test_the_place_moves_with_whole_events_only(self) -> None:
        data = f"data: {json.dumps(EVENT)}"
        reader, found = self.lines("id: 3", "event: memory.written", data)
        assert (reader.place, found) == (None, [])
        assert reader.take("") is not None
        assert reader.place == "3"
        reader.take("id: 4")
        assert reader.request().target.endswith("&after=3"), (
            "an event that broke off is asked again"
        )

    def test_a_sign_of_life_moves_it_too_and_is_no_event(self) -> None:
        reader, found = self.lines(": beat", "id: 9", "")
        assert (reader.place, found) == ("9", [])

    def test_a_place_says_more_than_a_number(self) -> None:
        """Of two events of one receipt, only the last is the one to go on after."""
        data = f"data: {json.dumps(EVENT)}"
        lines = (data, "", "id: 3", "place: 3-00ff", data, "")
        reader, found = self.lines(*lines)
        assert [event.place for event in found] == [None, "3-00ff"]
        assert reader.request().target.endswith("&after=3-00ff")

    @pytest.mark.parametrize("after", [-1, "x", "1-", "1-0&follow=true", "٣", "", "9" * 17])
    def test_what_is_no_place_is_not_asked_for(self, after: int | str) -> None:
        with pytest.raises(ConfigError):
            EventReader(after)

    @pytest.mark.parametrize("line", ["id: x", "place: 3-", "id: -1", "retry: 10", "unknown", ":"])
    def test_what_it_does_not_know_it_leaves(self, line: str) -> None:
        reader, found = self.lines(line, "")
        assert (reader.place, found) == (None, [])

    def test_it_waits_ever_longer_until_something_comes(self) -> None:
        reader, _ = self.lines()
        assert reader.pause_s() == PAUSE_S_MIN
        reader.take("")
        for _ in range(20):
            assert reader.goes_on_after(TransportError("gone"))
        assert 15 <= reader.pause_s() <= 30
        assert reader.goes_on_after(RateLimited("busy", status=429))
        reader.take("")
        assert reader.pause_s() == PAUSE_S_MIN

    @pytest.mark.parametrize(
        "error",
        [
            NotAllowed("no", status=403),
            ConfigError("no"),
            Invalid("a", "b"),
            make_malformed_error("all"),
        ],
    )
    def test_a_refusal_is_final(self, error: MemrelayError) -> None:
        reader, _ = self.lines("")
        assert not reader.goes_on_after(error)

    def test_only_who_follows_what_was_heard_waits(self) -> None:
        gone = TransportError("gone")
        reader, _ = self.lines("")
        assert reader.goes_on_after(gone)
        assert not EventReader(None).goes_on_after(gone)
        whole = EventReader(None, follow=False)
        whole.take("")
        assert not whole.goes_on_after(gone)

    def test_a_certificate_that_does_not_hold_is_not_waited_for(self) -> None:
        reader, _ = self.lines("")
        gone = TransportError("gone")
        gone.__cause__ = ssl.SSLCertVerificationError()
        assert not reader.goes_on_after(gone)


def test_the_client_knows_the_relayers_types() -> None:
    assert set(EVENTS) == TYPES


@contextmanager
def receiving() -> Iterator[Hook]:
    """A web server in a thread of its own."""
    started, stopping = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    found: list[Hook] = []

    async def run() -> None:
        async with listening() as hook:
            found.append(hook)
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    started.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


def put(run: Callable[..., str], webhook_id: str, url: str, *options: str) -> Any:
    return json.loads(run("webhooks", "add", url, "--id", webhook_id, *options, "--json"))


def test_the_commands_from_adding_to_removing(
    tmp_path: Path,
    model_dir: Path,
    fresh_database: TestDatabase,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two real processes and a web server: added, tested, told, listed, removed."""
    with (
        running_relayer(
            tmp_path / "data", model_dir, database_url=fresh_database.url,
            RELAYER_WEBHOOK_REACH="private",
        ) as relayer,
        receiving() as hook,
    ):  # fmt: skip
        account = relayer.command("account", "create", "--label", "t", "--custody", "sealed")
        environ = {
            "MEMRELAY_URL": relayer.url,
            "MEMRELAY_ACCOUNT_ID": account["account_id"],
            "MEMRELAY_PRIVATE_KEY": account["private_key"],
            "MEMRELAY_RELAYER_KEY": account["relayer_key"],
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path),
        }

        def run(*arguments: str, code: int = 0) -> str:
            assert main([*arguments], environ) == code
            return capsys.readouterr().out

        run("webhooks", "add", "ftp://nowhere", code=1)
        url = f"http://127.0.0.1:{hook.port}/in?token=abc"
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{url}\n"))
        made = json.loads(run("webhooks", "add", "-", "--event", "memory.written", "--json"))
        assert made["secret"].startswith("whsec_")
        assert "token" not in made["host"]
        assert json.loads(run("webhooks", "test", made["id"], "--json"))["delivered"]
        stored = json.loads(run("remember", "The owl Ottilie nests here.", "--json"))
        deadline = threading.Event()
        for _ in range(600):
            if len(hook.posts) >= 2:
                break
            deadline.wait(0.05)
        posts = [verify(p.headers, p.body, made["secret"]) for p in hook.posts]
        assert [(e.type, e.ids) for e in posts] == [
            ("webhook.test", ()),
            ("memory.written", (stored["id"],)),
        ]
        told = [json.loads(line) for line in run("events", "--json").splitlines()]
        assert [e["type"] for e in told][:2] == ["key.granted", "memory.written"]
        assert "Ottilie" not in json.dumps(told)
        place = told[0]["place"]
        line = run("events", "--after", place).splitlines()[0]
        assert stored["id"] in line
        assert line.split("  ")[0] == when(datetime.fromisoformat(told[1]["time"]))
        hook.answers = ["500 Oh"]
        assert not json.loads(run("webhooks", "test", made["id"], "--json", code=1))["delivered"]
        listed = json.loads(run("webhooks", "list", "--json"))["webhooks"]
        assert [h["id"] for h in listed] == [made["id"]]
        assert made["id"] in run("webhooks", "list")
        assert "secret" not in listed[0]
        changed = put(run, made["id"], url, "--only", "team", "--paused")
        assert (changed["events"], changed["namespaces"]) == (["memory.written"], ["team"])
        assert "only of team" in run("webhooks", "list")
        changed = put(run, made["id"], url, "--event", "memory.erased")
        assert (changed["events"], changed["namespaces"]) == (["memory.erased"], ["team"])
        assert not changed["active"], "a change of one thing begins nothing else"
        assert "secret" not in changed
        assert put(run, made["id"], url, "--no-paused")["active"]
        run("webhooks", "add", url, "--id", str(uuid.UUID(int=1)), code=3)
        run("webhooks", "remove", made["id"])
        run("webhooks", "remove", made["id"], code=3)
        run("webhooks", "test", made["id"], code=3)
