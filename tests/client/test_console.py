"""`memrelay console`: what it serves on this machine, to whom, and what it passes on.

Not here: what the page does in a browser (`tests/console/`), the same files at a relayer
(`tests/routes/test_console.py`).
"""

import hashlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from memrelay.cli import EXIT_USAGE, main
from memrelay.commands import console_server
from memrelay.commands.console_server import Files, Forwarding, read_files, serve
from memrelay.errors import ConfigError
from memrelay.sealed.keys import Identity
from relayer.http.console import POLICY
from tests.life import until
from tests.processes import RunningRelayer, create_account, lasting_port
from tests.signing import signed_headers

PAGE = b"<!doctype html><title>console</title>"
SCRIPT = "console-0123456789abcdef.js"
FILES = Files({"index.html": PAGE, SCRIPT: b"//"}, hashlib.sha256(PAGE).hexdigest())


@contextmanager
def console_at(url: str) -> Iterator[str]:
    forwarding = Forwarding(url)
    try:
        with serve(FILES, forwarding, 0) as port:
            yield f"http://127.0.0.1:{port}"
    finally:
        forwarding.close()


@pytest.fixture(scope="module")
def address(shared_relayer: RunningRelayer) -> Iterator[str]:
    with console_at(shared_relayer.url) as served:
        yield served


def test_the_files_come_under_the_relayers_own_policy(address: str) -> None:
    page = httpx.get(f"{address}/console")
    assert page.content == PAGE
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    assert "set-cookie" not in page.headers
    script = httpx.get(f"{address}/console/{SCRIPT}")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    for path in ("/", "/console/"):
        assert httpx.get(f"{address}{path}").headers["location"] == "/console"
    for path in ("/console/index.html", "/console/none.js", "/etc/passwd", "/health"):
        assert httpx.get(f"{address}{path}").status_code == 404


def test_requests_are_passed_on_byte_by_byte(address: str, shared_relayer: RunningRelayer) -> None:
    """A signed target arrives as it was signed, and the relayer's refusals come back."""
    direct, passed = (httpx.get(f"{base}/v1/relayer") for base in (shared_relayer.url, address))
    assert direct.json().keys() == passed.json().keys()
    assert passed.headers["content-type"] == "application/json"
    account = create_account(shared_relayer, "sealed")
    key = Identity.from_hex(account["private_key"])
    target = "/v1/memories?namespace=a'b%20c&limit=2"
    for base in (shared_relayer.url, address):
        headers = signed_headers(key, "GET", target, account=account["account_id"])
        with httpx.Client() as client:
            request = client.build_request(
                "GET", base, headers=headers, extensions={"target": target.encode()}
            )
            answer = client.send(request)
        assert (base, answer.json()) == (
            base,
            {"memories": [], "next_cursor": None, "unrestored": False},
        )
    unsigned = httpx.post(f"{address}/v1/recall", json={"query": "x"})
    assert unsigned.status_code == 401
    assert unsigned.headers["x-request-id"]


def test_other_sites_in_the_browser_get_nothing(address: str) -> None:
    port = address.rpartition(":")[2]
    refused = [
        {"host": f"evil.example:{port}"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": f"localhost:{port}", "origin": f"http://127.0.0.1:{port}"},
    ]
    for headers in refused:
        assert httpx.get(f"{address}/v1/relayer", headers=headers).status_code == 403, headers
    assert httpx.get(f"{address}/console", headers=refused[0]).status_code == 403
    own = {"host": f"localhost:{port}", "origin": f"http://localhost:{port}"}
    assert httpx.get(f"{address}/v1/relayer", headers=own).status_code == 200
    assert httpx.options(f"{address}/v1/relayer").status_code == 501


def test_a_body_has_a_length_and_a_bound(address: str) -> None:
    def parts() -> Iterator[bytes]:
        yield b"{}"

    assert httpx.post(f"{address}/v1/recall", content=parts()).status_code == 411
    line = HTTPConnection(address.removeprefix("http://"))
    line.putrequest("POST", "/v1/recall")
    line.putheader("content-length", str(console_server.BODY_BYTES_MAX + 1))
    line.endheaders()  # refused before any of it is sent
    assert line.getresponse().status == 413
    line.close()


def test_a_relayer_that_is_away_is_said(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with console_at(f"http://127.0.0.1:{port}") as served:
        answer = httpx.get(f"{served}/v1/relayer")
    assert (answer.status_code, answer.text) == (
        502,
        "The relayer was not reached: connection refused.\n",
    )


def test_both_loopback_addresses_are_taken(address: str) -> None:
    """`localhost` may be either: on one that is free, somebody else could listen."""
    port = int(address.rpartition(":")[2])
    for family, place in console_server._FAMILIES:
        with socket.socket(family) as other, pytest.raises(OSError, match=r"in use|not available"):
            other.bind((place, port))
    with (
        pytest.raises(ConfigError, match="Choose another one with --port"),
        serve(FILES, Forwarding("http://127.0.0.1:9"), port),
    ):
        pass


def test_an_installation_without_the_files_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`make console`"):
        read_files(tmp_path)


def test_the_command_says_where_it_is_and_its_hash_and_ends_when_asked(
    shared_relayer: RunningRelayer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "index.html").write_bytes(PAGE)
    monkeypatch.setattr(console_server, "FOLDER", tmp_path)
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"url": shared_relayer.url}))
    profile.chmod(0o600)
    port = lasting_port()
    seen: list[bytes] = []

    def look_and_end() -> None:
        def answers() -> bool:
            try:
                seen.append(httpx.get(f"http://127.0.0.1:{port}/console").content)
            except httpx.ConnectError:
                return False
            return True

        until(answers, "the console")
        os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    browser = threading.Thread(target=look_and_end)
    browser.start()
    code = main(["console", "--port", str(port), "--profile", str(profile), "--json"])
    browser.join()
    assert (code, seen) == (0, [PAGE])
    assert json.loads(capsys.readouterr().out) == {
        "url": f"http://localhost:{port}/console",
        "relayer": shared_relayer.url,
        "sha256": FILES.sha256,
    }
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("said", ["ture", "on"])
def test_a_switch_that_is_mistyped_is_refused_as_by_every_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: str,
) -> None:
    (tmp_path / "index.html").write_bytes(PAGE)
    monkeypatch.setattr(console_server, "FOLDER", tmp_path)
    monkeypatch.setenv("MEMRELAY_ALLOW_INSECURE", said)
    profile = tmp_path / "profile.json"
    profile.write_text("{}")
    profile.chmod(0o600)
    code = main(["console", "http://memory.example", "--profile", str(profile)])
    assert code == EXIT_USAGE
    assert "MEMRELAY_ALLOW_INSECURE" in capsys.readouterr().err
