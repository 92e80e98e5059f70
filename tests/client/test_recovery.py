"""A recovery key: printed once, typed back in, and the end of the last key said beforehand."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_USAGE
from memrelay.config import Settings
from memrelay.errors import ConfigError
from memrelay.gateway.spool import SpoolKey
from memrelay.models import KeyInfo
from memrelay.sealed.keys import Identity
from memrelay.sealed.recovery import recover_identity, recovery_lines
from tests.client.agents_scene import Machine
from tests.client.conftest import Example
from tests.client.spool_scene import spool_in, turns
from tests.processes import RunningRelayer

ACCOUNT = bytes(range(32))
WAIT_S_MAX = 60


@pytest.fixture(params=["sealed", "managed"])
def machine(
    request: pytest.FixtureRequest,
    shared_relayer: RunningRelayer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Machine:
    machine = Machine(tmp_path / "first", shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url, "--custody", request.param)
    return machine


@pytest.fixture
def sealed(
    shared_relayer: RunningRelayer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Machine:
    machine = Machine(tmp_path / "first", shared_relayer.url, capsys)
    machine.run("init", shared_relayer.url)
    return machine


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have this on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


class TestForm:
    def test_it_is_as_specified(self, example: Example) -> None:
        """Source: SPEC §16."""
        assert recovery_lines(example.agent, example.account) == [
            "4041 4243 4445 4647 f30f",
            "4849 4a4b 4c4d 4e4f 81de",
            "5051 5253 5455 5657 c5bf",
            "5859 5a5b 5c5d 5e5f 908d",
        ]

    def test_what_was_printed_is_read_back(self) -> None:
        identity = Identity(bytes(range(100, 132)))
        lines = recovery_lines(identity, ACCOUNT)
        assert len(lines) == 4
        assert all(re.fullmatch(r"([0-9a-f]{4} ){4}[0-9a-f]{4}", line) for line in lines)
        for text in (
            "\n".join(lines),
            "".join(lines).replace(" ", "").upper(),
            "  -  ".join(lines) + "\r\n",
        ):
            assert recover_identity(text, ACCOUNT).public_key == identity.public_key

    @pytest.mark.parametrize("line", range(4))
    def test_every_slip_is_found_in_its_line(self, line: int) -> None:
        lines = recovery_lines(Identity(bytes(range(100, 132))), ACCOUNT)
        for at in range(24):
            if lines[line][at] == " ":
                continue
            wrong = "0" if lines[line][at] != "0" else "f"
            changed = lines[line][:at] + wrong + lines[line][at + 1 :]
            with pytest.raises(ConfigError) as caught:
                recover_identity("".join([*lines[:line], changed, *lines[line + 1 :]]), ACCOUNT)
            assert f"line {line + 1}" in str(caught.value)
            assert changed not in str(caught.value)

    def test_lines_in_another_order_and_another_account_are_found(self) -> None:
        lines = recovery_lines(Identity(bytes(range(100, 132))), ACCOUNT)
        with pytest.raises(ConfigError, match="line 1 and line 2"):
            recover_identity("".join([lines[1], lines[0], *lines[2:]]), ACCOUNT)
        with pytest.raises(ConfigError, match="another account"):
            recover_identity("".join(lines), bytes(32))

    @pytest.mark.parametrize("text", ["", "0000", "g" * 80, "0" * 79, "0" * 81, "０" * 80])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="4 lines"):
            recover_identity(text, ACCOUNT)


def test_the_way_back_after_every_other_key_is_lost(
    machine: Machine, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.run("remember", "Anna prefers tea.")
    machine.run("rotate", "--reseal", "none")
    sheet = machine.json("keys", "recovery")
    [entry] = machine.keys("recovery")
    assert (entry["role"], entry["namespaces"], entry["expires_at"]) == ("owner", None, None)
    assert entry["public_key"] == sheet["public_key"]
    # Another machine: nothing but the sheet of paper.
    other = Machine(tmp_path / "second", machine.url, capsys)
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    named = ["--account-id", sheet["account_id"], "--relayer-key", sheet["relayer_key"]]
    shown = other.json("keys", "recover", sheet["url"], *named, "--label", "laptop")
    assert shown["role"] == "owner"
    assert "private_key" not in shown
    found = other.json("recall", "who drinks tea")["results"]
    assert [memory["text"] for memory in found] == ["Anna prefers tea."]
    assert other.keys("laptop")[0]["public_key"] == shown["public_key"]
    # The seed of the paper is in no file of either machine.
    recovery = recover_identity(
        "".join(sheet["recovery_key"]), bytes.fromhex(sheet["account_id"][2:])
    ).seed_hex()
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert recovery not in path.read_text(errors="replace")
        assert sheet["recovery_key"][0] not in path.read_text(errors="replace")
    # It goes on: a rotation without a lost key, and the recovery key still works afterwards.
    with other.client() as client:
        lost = client.add_key(namespaces=None, role="owner", label="lost")
    assert other.json("rotate", "--revoke", lost.public_key, "--reseal")["revoked"] == [
        lost.public_key
    ]
    typed(monkeypatch, "".join(sheet["recovery_key"]))
    third = Machine(tmp_path / "third", machine.url, capsys)
    third.json("keys", "recover", sheet["url"], *named)
    assert third.json("recall", "who drinks tea")["results"]


def test_who_else_owns_the_account_follows_from_grants(
    sealed: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relayer neither adds an owner to what a person is told nor hides one."""
    sheet = sealed.json("keys", "recovery")
    before = Settings.load(sealed.profile, environ={})
    hidden = before.public_key
    truth = SyncMemoryClient.keys

    def told(client: SyncMemoryClient) -> tuple[KeyInfo, ...]:
        listed = [key for key in truth(client) if key.public_key != hidden]
        return (*listed, KeyInfo(public_key="ab" * 32, role="owner"))

    monkeypatch.setattr(SyncMemoryClient, "keys", told)
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    lines = sealed.run("keys", "recover", "--force").splitlines()
    owners = [line for line in lines if line.startswith("owner")]
    assert owners == [f"owner     {before.masked_key}  -"]


def test_a_mistyped_key_sends_nothing(
    sealed: Machine, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = sealed.json("keys", "recovery")
    other = Machine(tmp_path / "second", sealed.url, capsys)
    lines = list(sheet["recovery_key"])
    lines[2] = lines[2][:-1] + ("0" if lines[2][-1] != "0" else "1")
    typed(monkeypatch, "\n".join(lines))
    nobody = "http://127.0.0.1:9"
    other.run("keys", "recover", nobody, "--account-id", sheet["account_id"], code=EXIT_USAGE)
    assert "line 3" in other.err
    assert not other.profile.exists()
    before = [key["public_key"] for key in sealed.json("keys", "list")["keys"]]
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    other.run("keys", "recover", nobody, "--account-id", sheet["account_id"], code=EXIT_FAILED)
    assert not list(other.profile.parent.glob("profile*"))
    assert [key["public_key"] for key in sealed.json("keys", "list")["keys"]] == before


def test_what_waited_for_the_old_key_waits_for_the_new_one(
    sealed: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = sealed.json("keys", "recovery")
    spool = spool_in(sealed.profile.parent / "spool")
    spool.put(SpoolKey.of(Settings.load(sealed.profile, environ={}).identity), b"a turn")
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    sealed.run("keys", "recover", "--force")
    assert "sealed for the new key: 1 captured turn" in sealed.err
    new = Settings.load(sealed.profile, environ={}).identity
    assert turns(spool, SpoolKey.of(new)) == [b"a turn"]


def test_a_revoked_recovery_key_is_no_way_back(
    sealed: Machine, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = sealed.json("keys", "recovery")
    sealed.run("keys", "revoke", "recovery", "--yes")
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    other = Machine(tmp_path / "second", sealed.url, capsys)
    named = ["--account-id", sheet["account_id"], "--relayer-key", sheet["relayer_key"]]
    other.run("keys", "recover", sheet["url"], *named, code=EXIT_FAILED)
    assert not other.profile.exists()


@contextmanager
def passing_on(url: str, lost: str) -> Iterator[str]:
    """The relayer behind a line that breaks before the answer to this request comes back."""

    class Line(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            answer = httpx.request(self.command, url + self.path, content=body, headers=headers)
            if f"{self.command} {self.path}" == lost:
                self.connection.close()
                return
            self.send_response(answer.status_code)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = _pass_on

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Line) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("lost", ["POST /v1/grants", "GET /v1/keys"])
def test_a_key_that_owns_the_account_is_never_thrown_away(
    sealed: Machine, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Its grant counts though the answer was lost, and what comes after it may fail as well."""
    sheet = sealed.json("keys", "recovery")
    other = Machine(tmp_path / "second", sealed.url, capsys)
    typed(monkeypatch, "".join(sheet["recovery_key"]))
    named = ["--account-id", sheet["account_id"], "--relayer-key", sheet["relayer_key"]]
    with passing_on(sealed.url, lost) as url:
        other.run("keys", "recover", url, *named, "--label", "new", code=EXIT_FAILED)
    [entry] = sealed.keys("new")
    [kept] = other.profile.parent.glob("profile.json*")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (kept == other.profile) == (lost == "GET /v1/keys") != (str(kept) in other.err)
    seed = bytes.fromhex(json.loads(kept.read_text())["private_key"])
    assert Identity(seed).public_key.hex() == entry["public_key"]


def test_an_existing_profile_is_kept(sealed: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = sealed.json("keys", "recovery")
    old = sealed.profile.read_text()
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    sealed.run("keys", "recover", code=EXIT_USAGE)
    assert "--force" in sealed.err
    typed(monkeypatch, "\n".join(sheet["recovery_key"]))
    sealed.json("keys", "recover", "--force")  # the profile tells relayer and account
    kept = sealed.profile.with_name(f"{sealed.profile.name}.old")
    assert kept.read_text() == old
    now = json.loads(sealed.profile.read_text())
    assert now["private_key"] != json.loads(old)["private_key"]
    assert sealed.profile.stat().st_mode & 0o777 == 0o600
    assert sealed.json("status")


def test_it_is_shown_on_a_terminal_and_nowhere_else(sealed: Machine) -> None:
    sealed.run("keys", "recovery", code=EXIT_USAGE)
    assert sealed.keys("recovery") == [], "what is not shown is not granted either"
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "memrelay", "keys", "recovery"],
        env={**os.environ, **sealed.environ},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.DEVNULL,
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert process.wait(WAIT_S_MAX) == 0
    text = shown.decode()
    assert len(re.findall(r"(?:[0-9a-f]{4} ){4}[0-9a-f]{4}", text)) == 4
    assert "cannot be read again by anybody" in text


class TestLastOwner:
    """Losing every key of a sealed account loses its data: said before it happens."""

    def test_founding_says_so(self, sealed: Machine, tmp_path: Path, capsys: Any) -> None:
        another = Machine(tmp_path / "another", sealed.url, capsys)
        assert "keys recovery" in another.run("init", sealed.url)

    def test_the_last_owner_but_one_needs_a_yes(self, sealed: Machine) -> None:
        with sealed.client() as owner:
            deputy = owner.add_key(namespaces=None, role="owner").public_key
            agent = owner.add_key(namespaces=["team"]).public_key
        for command in (["keys", "revoke", deputy], ["rotate", "--revoke", deputy]):
            sealed.run(*command, code=EXIT_USAGE)
            assert "who loses it loses the account" in sealed.err
        sealed.json("keys", "revoke", agent)  # no owner: no question
        sealed.json("keys", "recovery")
        sealed.json("keys", "revoke", deputy)

    def test_the_last_owner_needs_it_all_the_more(self, sealed: Machine) -> None:
        with sealed.client() as owner:
            own = owner.settings.public_key
        sealed.run("keys", "revoke", own, code=EXIT_USAGE)
        assert "nobody could read" in sealed.err
        sealed.json("keys", "list")
        sealed.json("keys", "revoke", own, "--yes")
        sealed.run("keys", "list", code=EXIT_FAILED)

    def test_an_owner_whose_time_is_over_does_not_count(self, sealed: Machine) -> None:
        with sealed.client() as owner:
            owner.add_key(
                namespaces=None, role="owner", label="brief", expires=timedelta(seconds=5)
            )
            owner.add_key(namespaces=None, role="owner", label="deputy")
            until = time.monotonic() + WAIT_S_MAX
            while not _ended(owner, "brief"):
                assert time.monotonic() < until
        sealed.run("keys", "revoke", "deputy", code=EXIT_USAGE)
        assert "Only" in sealed.err


def _ended(client: SyncMemoryClient, label: str) -> bool:
    [key] = [key for key in client.keys() if key.label == label]  # noqa: SIM118  # no mapping
    return key.expires_at is not None and key.expires_at <= datetime.now(UTC)


def test_settings_are_not_needed_to_be_complete(tmp_path: Path, capsys: Any) -> None:
    machine = Machine(tmp_path, "http://127.0.0.1:9", capsys)
    machine.run("keys", "recover", code=EXIT_USAGE)
    assert "relayer" in machine.err
    machine.run("keys", "recover", "http://127.0.0.1:9", code=EXIT_USAGE)
    assert "--account-id" in machine.err
