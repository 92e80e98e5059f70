"""The serving process as its users meet it: the contract of the command line, signals, crashes."""

import asyncio
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrelay import MemrelayError
from memrelay.errors import TransportError, Unavailable
from relayer import serve
from relayer.serve import Ending, attend, bind
from relayer.settings import SECRET, Settings, variable
from relayer.storage import Storage
from tests.forked import forked
from tests.life import WAIT_S_MAX
from tests.processes import (
    RunningRelayer,
    all_texts,
    client,
    create_account,
    lasting_port,
    postgres_of,
    running_relayer,
)
from tests.signing import well_formed

ROOT = Path(__file__).parents[2]
WRITERS = 3
KILLS = 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_server_and_database(
    tmp_path: Path, model_dir: Path, number: signal.Signals
) -> None:
    with running_relayer(tmp_path, model_dir) as relayer:
        assert httpx.get(f"{relayer.url}/health").json()["status"] == "ok"
        assert postgres_of(tmp_path) is not None
        relayer.process.send_signal(number)
        assert relayer.process.wait(timeout=30) == 0
    assert postgres_of(tmp_path) is None
    assert not (tmp_path / "relayer.json").exists()


@pytest.mark.parametrize("postgres_survives", [True, False])
def test_it_starts_again_after_kill_9(
    tmp_path: Path, model_dir: Path, postgres_survives: bool
) -> None:
    with running_relayer(tmp_path, model_dir) as relayer:
        account = create_account(relayer, "sealed")
        with client(account, relayer.url) as memory:
            memory.remember("The lighthouse keeper is called Ottilie.")
        pid = postgres_of(tmp_path)
        assert pid is not None
        relayer.kill()
        if not postgres_survives:
            os.kill(pid, signal.SIGKILL)
    with (
        running_relayer(tmp_path, model_dir) as relayer,
        client(account, relayer.url) as memory,
    ):
        found = memory.recall("Who keeps the lighthouse?", min_relevance=0.0)
        assert [r.text for r in found.results] == ["The lighthouse keeper is called Ottilie."]


def test_kill_9_during_writes_loses_and_doubles_nothing(tmp_path: Path, model_dir: Path) -> None:
    """Acknowledged writes are there exactly once; retried ones are not stored twice."""
    acknowledged: set[str] = set()
    account: dict[str, Any] = {}
    stopping = threading.Event()
    port = str(lasting_port())

    def write(writer: int) -> None:
        number = 0
        with client(account, f"http://127.0.0.1:{port}", deadline_s=60.0) as memory:
            while not stopping.is_set():
                text = f"Writer {writer} noted the item number {number}."
                try:
                    memory.remember(text, idempotency_key=f"{writer}-{number}")
                except (TransportError, Unavailable):
                    continue  # as an agent would, with the same key
                acknowledged.add(text)
                number += 1

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        futures = []
        for _ in range(KILLS):
            with running_relayer(tmp_path, model_dir, "--port", port) as relayer:
                if not account:
                    account |= create_account(relayer, "managed")
                    futures = [pool.submit(write, n) for n in range(WRITERS)]
                seen = len(acknowledged)
                _until(lambda seen=seen: len(acknowledged) > seen + 20)
                relayer.kill()
        with running_relayer(tmp_path, model_dir, "--port", port) as relayer:
            seen = len(acknowledged)
            _until(lambda: len(acknowledged) > seen + 10)
            stopping.set()
            for future in futures:
                future.result(timeout=60)
            with client(account, relayer.url) as memory:
                stored = all_texts(memory)
            report = relayer.command("check")
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))
    assert report["ok"], report["problems"]


def _until(condition: Any, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.01)


def test_commands_work_beside_the_server_and_without_it(tmp_path: Path, model_dir: Path) -> None:
    with running_relayer(tmp_path, model_dir) as relayer:
        beside = create_account(relayer, "sealed")
        assert beside["server_url"] == relayer.url
        assert re.fullmatch(r"[0-9a-f]{64}", beside["private_key"])
    without = relayer.command("account", "create", "--label", "later", "--custody", "managed")
    assert without["server_url"] is None
    assert postgres_of(tmp_path) is None, "a command stops the database that it started"
    listed = relayer.command("account", "list")["accounts"]
    assert {a["label"]: a["custody"] for a in listed} == {"test": "sealed", "later": "managed"}


def test_a_sealed_founder_key_is_written_nowhere(tmp_path: Path, model_dir: Path) -> None:
    """capability 0.41: no private key in any file or log of the relayer."""
    with running_relayer(tmp_path, model_dir) as relayer:
        account = create_account(relayer, "sealed")
        secret = account["private_key"]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert bytes.fromhex(secret) not in data
            assert secret.encode() not in data


def test_key_add_on_a_sealed_account_needs_the_owner(
    relayer: RunningRelayer, tmp_path: Path
) -> None:
    account = create_account(relayer, "sealed")
    add = ["key", "add", "--account", account["account_id"], "--namespaces", "a,b"]
    refused = _command(relayer, *add)
    assert refused.returncode == 2
    assert "--owner-key-file" in refused.stderr
    assert "RELAYER_OWNER_KEY" in refused.stderr
    owner = tmp_path / "owner.key"
    owner.write_text(account["private_key"])
    key = relayer.command(
        *add, "--role", "reader", "--owner-key-file", str(owner), "--expires", "90d"
    )
    keys = relayer.command("key", "list", "--account", account["account_id"])["keys"]
    entry = next(k for k in keys if k["public_key"] == key["public_key"])
    assert (entry["role"], entry["namespaces"], entry["revoked"]) == ("reader", ["a", "b"], False)
    assert entry["expires_at"] is not None


def test_key_revoke_counts_on_the_next_request(relayer: RunningRelayer) -> None:
    account = create_account(relayer, "managed")
    key = relayer.command("key", "add", "--account", account["account_id"], "--role", "writer")
    with client(key, relayer.url) as memory:
        memory.remember("Before the revocation.")
        relayer.command(
            "key", "revoke", "--account", account["account_id"], "--key", key["public_key"]
        )
        with pytest.raises(MemrelayError) as refused:
            memory.recall("Before?")
    assert getattr(refused.value, "status", None) == 401


def _command(relayer: RunningRelayer, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return forked(
        *("relayer", *arguments, "--data-dir", str(relayer.data_dir)),
        env=relayer.environment,
        timeout_s=60,
    )


def test_doctor_and_check_tell_what_holds(relayer: RunningRelayer) -> None:
    assert relayer.command("check") == {"ok": True, "checked": {}, "problems": []}
    done = _command(relayer, "doctor")
    assert done.returncode == 0, done.stdout


def test_switched_off_limits_warn_loudly(tmp_path: Path, model_dir: Path) -> None:
    with running_relayer(
        tmp_path, model_dir, RELAYER_RATE_LIMIT="off", RELAYER_EMBEDDER="none"
    ) as relayer:
        assert "WARNING: request limits are OFF" in relayer.log.read_text()


def test_a_bad_setting_names_its_variable(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relayer", "serve", "--data-dir", str(tmp_path)],
        env={**os.environ, "RELAYER_DATABASE_CONNECTIONS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "RELAYER_DATABASE_CONNECTIONS" in done.stderr


def test_the_example_environment_is_the_settings() -> None:
    text = (ROOT / "deploy/env.example").read_text()
    listed = dict(re.findall(r"^#([A-Z0-9_]+)=(.*)$", text, re.MULTILINE))
    assert listed == {variable(f.name): str(f.default) for f in fields(Settings)}


def test_help_lists_every_setting_with_its_variable() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relayer", "serve", "--help-all"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for item in fields(Settings):
        assert variable(item.name) in done.stdout
        assert f"--{item.name.replace('_', '-')}" in done.stdout


def test_settings_hide_secrets() -> None:
    hidden = {"registration_token": "open-sesame-" * 2, "metrics_token": "count-me-" * 2}
    shown = repr(Settings(**hidden, openai_api_key="sk-secret"))  # type: ignore[arg-type]
    assert "open-sesame" not in shown
    assert "count-me" not in shown
    assert "sk-secret" not in shown
    assert {
        *("registration_token", "metrics_token", "openai_api_key"),
        *("database_url", "database_direct_url", "s3_secret_access_key"),
    } == SECRET


async def test_who_leaves_lets_a_request_take_its_time(
    storage: Storage, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little time the process itself takes."""
    monkeypatch.setattr(serve, "LEAVE_S", 0.1)
    monkeypatch.setattr(serve, "GRACE_S", 0)
    patient = replace(settings, embedder="none", request_timeout_s=2 * WAIT_S_MAX)
    ending, ready = Ending(), asyncio.Event()
    with bind(patient) as sockets:
        serving = asyncio.create_task(attend(storage, patient, sockets, ending, ready.set))
        async with asyncio.timeout(WAIT_S_MAX):
            await ready.wait()
            where = sockets[0].getsockname()
            idle, busy = [await asyncio.open_connection(*where) for _ in range(2)]
            idle[1].write(b"GET /health HTTP/1.1\r\nHost: relayer\r\n\r\n")
            assert b" 200 " in await idle[0].readline()
            busy[1].write(half_a_request())
            assert b" 100 " in await busy[0].readline(), "the body is waited for"
            ending.leave()
            await idle[0].read()  # until it is closed
            ended, _ = await asyncio.wait({serving}, timeout=1)
            assert not ended, "it would be at once, if it were over"
            busy[1].write(b"}")
            answer = await busy[0].read()
            await serving
    assert b"HTTP/1.1 401 " in answer, "its signature is wrong"
    assert b"connection: close" in answer
    for _, writer in (idle, busy):
        writer.close()


def half_a_request() -> bytes:
    """What somebody may have signed, but for its last byte; the signature is found wrong then."""
    signing = "".join(f"{name}: {value}\r\n" for name, value in well_formed().items())
    head = f"""POST /v1/remember HTTP/1.1\r
Host: relayer\r
Expect: 100-continue\r
Content-Type: application/json\r
Content-Length: 2\r
{signing}\r
"""
    return head.encode() + b"{"
