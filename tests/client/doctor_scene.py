"""A machine that `memrelay doctor` examines, and what must hold of everything that it says."""

import json
import os
import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_OK, build_parser, main
from memrelay.config import Settings, read_profile
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING, Case, Finding, examine
from memrelay.sealed.keys import Identity
from memrelay.secure_files import write_private
from relayer.__main__ import main as relayer_main
from tests.optional import unwrap

HOUR_S = 3600
SHELL = {"chmod", "curl", "env", "export", "kill", "ls", "mv", "nslookup", "openssl", "pip", "rm"}
SHELL |= {"python", "sudo", "unset", "uv", "${EDITOR:-vi}"}
DEPENDENT = ["relayer", "version", "clock", "identity", "key", "grants", "namespace", "custody"]
DEPENDENT += ["storage", "recalls", "facts", "agents", "search"]


class Machine:
    """A user's machine: a home, the command line, and the doctor with any clock."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "config" / "memrelay"
        self.profile = self.folder / "profile.json"
        self.environ = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "PATH": os.environ["PATH"],
        }

    def run(self, *argv: str) -> int:
        return main(list(argv), self.environ)

    def init(self, url: str) -> None:
        assert self.run("init", url) == EXIT_OK

    def write(self, path: Path | None = None, **values: object) -> Path:
        """Change members of a profile, or write a new one."""
        path = path or self.profile
        known = read_profile(path, missing_ok=True)
        write_private(path, {**known, **values})
        return path

    def add_key(self, name: str, namespace: str, **choices: Any) -> Path:
        """An agent's own profile, with a grant of one namespace."""
        owner = Settings.load(self.profile, environ={})
        with SyncMemoryClient.from_settings(owner) as client:
            key = client.add_key(namespaces=[namespace], label=name, **choices)
        return self.write(
            self.folder / "agents" / f"{name}.json",
            url=owner.url,
            account_id=key.account_id,
            private_key=key.private_key,
            namespace=namespace,
        )

    def add_ended_key(self, name: str, namespace: str) -> Path:
        """One whose grant has ended; a relayer takes none that has before."""
        path = self.add_key(name, namespace, expires=timedelta(seconds=5))
        over = time.monotonic() + 5
        while time.monotonic() < over:
            time.sleep(0.1)
        return path

    def examine(self, *, clock=time.time, timeout_s=5.0, probe=False, **options: Any):
        """The findings by check; each command can be typed, and nothing secret is in them."""
        options.setdefault("system", self.home)
        case = Case(environ=self.environ, clock=clock, timeout_s=timeout_s, **options)
        found = {finding.check: finding for finding in examine(case, probe=probe)}
        for finding in found.values():
            check_command(finding)
        self.check_secrets(json.dumps([finding.to_json() for finding in found.values()]))
        return found

    def check_secrets(self, shown: str) -> None:
        for path in [self.profile, *self.folder.glob("agents/?????.json")]:
            if path.exists():
                values = json.loads(path.read_text())
                identity = Identity.from_hex(values["private_key"])
                assert values["private_key"] not in shown
                assert identity.public_key.hex() not in shown

    def history(self) -> Path:
        """The file of what was seen, once something was."""
        assert self.run("list") == EXIT_OK
        [path] = self.folder.glob("*.seen.json")
        return path

    def typed(self, finding: Finding) -> None:
        """Type a command of the shell that was told."""
        subprocess.run(unwrap(finding.command), shell=True, check=True)


def check_command(finding: Finding) -> None:
    """A problem has a command, and every command is one that exists, with arguments it takes."""
    assert finding.state in {OK, WARNING, PROBLEM, SKIPPED}
    assert finding.detail
    assert (finding.command is not None) or finding.state in {OK, SKIPPED}
    if finding.command is None:
        return
    program, *arguments = shlex.split(finding.command)
    if program == "memrelay":
        build_parser().parse_args(arguments)
    elif program == "relayer":
        # Options that do not exist are refused before the help is shown.
        assert CliRunner().invoke(relayer_main, [*arguments, "--help"]).exit_code == 0
    else:
        assert program.rpartition("/")[2] in SHELL


def states(found: dict[str, Finding], state: str) -> list[str]:
    return [name for name, finding in found.items() if finding.state == state]


def the_problem(found: dict[str, Finding], check: str) -> Finding:
    """The only problem there is."""
    assert states(found, PROBLEM) == [check], [found[name] for name in states(found, PROBLEM)]
    return found[check]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def user(machine: Machine, shared_relayer) -> Machine:
    """A machine whose profile is that of an account's owner."""
    machine.init(shared_relayer.url)
    return machine


def hang_up(server: socket.socket) -> None:
    server.accept()[0].close()


@contextmanager
def listening(*, closes: bool = False) -> Iterator[str]:
    """The URL of a socket that accepts, and never answers or closes at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if closes:
            Thread(target=hang_up, args=[server], daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def answering(
    answers: Mapping[str, object], certificate: Path | None = None, time_s: float | None = None
) -> Iterator[str]:
    """The URL of a server with these JSON answers by path, and 404 for others, at its own time."""

    class Handler(BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(timestamp or time_s)

        def do_GET(self) -> None:
            found = self.path in answers
            body = json.dumps(answers.get(self.path)).encode()
            self.send_response(200 if found else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing on the console."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: a refused handshake is what is wanted."""

    server = Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        scheme = "https" if certificate else "http"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
