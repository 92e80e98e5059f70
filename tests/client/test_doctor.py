"""`memrelay doctor`: every cause made for real, and what it says and tells to type."""

import json
import os
import shlex
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import asyncpg
import pytest
import pytest_asyncio
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from memrelay import SyncMemoryClient, __version__
from memrelay.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, build_parser, main
from memrelay.config import Settings, read_profile
from memrelay.doctor import OK, PROBLEM, SKIPPED, WARNING, Case, Finding, examine
from memrelay.errors import QuotaExceeded
from memrelay.gateway.spool import Spool, SpoolKey
from memrelay.private import write_private
from memrelay.sealed.keys import Identity, account_id_of, account_text
from relayer.__main__ import main as relayer_main
from tests.conftest import database_copy
from tests.processes import running_relayer

HOUR_S = 3600
STORAGE_BYTES_MAX = 64 * 1024
SHELL = {"chmod", "curl", "env", "export", "kill", "ls", "mv", "nslookup", "openssl", "pip", "rm"}
SHELL |= {"python", "sudo", "unset", "uv", "${EDITOR:-vi}"}
DEPENDENT = ["relayer", "version", "clock", "identity", "key", "grants", "namespace", "custody"]
DEPENDENT += ["storage", "search"]


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

    def add_key(self, name: str, namespace: str, **choices: object) -> Path:
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

    def examine(self, *, clock=time.time, timeout_s=5.0, probe=False, **options: str):
        """The findings by check; each command can be typed, and nothing secret is in them."""
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
        subprocess.run(finding.command, shell=True, check=True)


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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small_relayer(postgres, template, model_dir, tmp_path_factory):
    """A relayer without an embedder, where an account may store little."""
    async with database_copy(postgres, template) as copy:
        folder = tmp_path_factory.mktemp("small")
        small = {"RELAYER_EMBEDDER": "none", "RELAYER_STORAGE_BYTES_MAX": str(STORAGE_BYTES_MAX)}
        with running_relayer(folder, model_dir, database_url=copy.url, **small) as process:
            yield process


# All is well


def test_a_healthy_machine(user: Machine, capsys) -> None:
    """capability 0.45: the profile and the relayer's health are examined, and well."""
    found = user.examine()
    assert (states(found, PROBLEM), states(found, WARNING)) == ([], [])
    assert states(found, SKIPPED) == ["hermes", "openclaw", "gateway"]
    assert "probe" not in found
    capsys.readouterr()
    assert user.run("doctor") == EXIT_OK
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split()[1] for line in out.splitlines()] == list(found)


def test_json_is_one_value_with_every_finding(user: Machine, capsys) -> None:
    capsys.readouterr()
    assert user.run("doctor", "--json") == EXIT_OK
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] is True
    assert {tuple(finding) for finding in value["findings"]} == {
        ("check", "state", "detail", "command")
    }


def test_a_probe_leaves_nothing_behind(user: Machine) -> None:
    found = user.examine(probe=True)
    assert found["probe"].detail == "a memory was stored, found and forgotten"
    with SyncMemoryClient.from_settings(Settings.load(user.profile, environ={})) as client:
        assert client.list().memories == ()
        assert client.stats().memory_count == 0


def test_a_reader_is_not_probed(user: Machine) -> None:
    user.add_key("coder", "coder", role="reader")
    found = user.examine(agent="coder", probe=True)
    assert found["grants"].detail == "reader of coder"
    assert (found["probe"].state, states(found, PROBLEM)) == (SKIPPED, [])


# The profile


def test_without_a_profile(machine: Machine, capsys) -> None:
    found = machine.examine()
    assert the_problem(found, "profile").command == "memrelay init URL"
    assert [name for name in DEPENDENT if found[name].state != SKIPPED] == []
    assert machine.run("doctor") == EXIT_FAILED
    out, err = capsys.readouterr()
    assert "PROBLEM  profile" in out
    assert "type:  memrelay init URL" in out
    assert err == "memrelay: One thing is wrong.\n"


def test_a_profile_that_others_may_read(user: Machine) -> None:
    """capability 0.45: a profile that is not private is refused, with what mends it."""
    user.profile.chmod(0o644)
    found = the_problem(user.examine(), "profile")
    assert "Others may read" in found.detail
    user.typed(found)
    assert user.examine()["profile"].state == OK


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"private_key": "abc"}, "private key"),
        ({"url": "ftp://example.org"}, "URL"),
        ({"url": "http://example.org"}, "https"),
        ({"account_id": "0x12"}, "account id"),
        ({"custody": "none"}, "Custody"),
        ({"relayer_key": "12"}, "public key"),
        ({"colour": "red"}, "unknown members: colour"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_profile_with_a_wrong_value(machine: Machine, values, named: str) -> None:
    """capability 0.45: key, URL and the other settings are validated."""
    identity = Identity.generate()
    right = {
        "url": "http://127.0.0.1:9",
        "account_id": account_text(account_id_of(identity.public_key)),
        "private_key": identity.seed_hex(),
    }
    write_private(machine.profile, {**right, **values})
    case = Case(environ=machine.environ)
    found = next(examine(case))
    assert (found.state, found.command) == (PROBLEM, f"${{EDITOR:-vi}} {machine.profile}")
    assert named.lower() in found.detail.lower()
    assert identity.seed_hex() not in found.detail


def test_a_malformed_profile_is_not_quoted(machine: Machine) -> None:
    machine.folder.mkdir(parents=True)
    machine.profile.touch(mode=0o600)
    machine.profile.write_text('{"private_key": "' + "5e" * 32)
    found = next(examine(Case(environ=machine.environ)))
    assert found.state == PROBLEM
    assert "malformed" in found.detail
    assert "5e5e" not in found.detail


def test_an_agent_without_a_profile(user: Machine) -> None:
    found = the_problem(user.examine(agent="ghost"), "profile")
    assert found.command == "memrelay agents provision ghost"


def test_commands_name_the_profile_that_was_given(user: Machine) -> None:
    path = user.profile.rename(user.folder / "my profile.json")
    found = user.examine(profile=str(path), agent="ghost")
    expected = f"memrelay agents provision ghost --profile '{path}'"
    assert the_problem(found, "profile").command == expected
    user.write(path, relayer_key=Identity.generate().public_key.hex())
    found = user.examine(profile=str(path))
    assert the_problem(found, "identity").command == f"memrelay trust KEY --profile '{path}'"
    found = user.examine(profile=str(path.with_name("none.json")))
    assert the_problem(found, "profile").command.startswith("memrelay init URL --profile ")


@pytest.mark.parametrize("option", [("--agent", "../x"), ("--namespace", "x" * 200)])
def test_a_malformed_name_is_a_wrong_argument(user: Machine, option) -> None:
    assert user.run("doctor", *option) == EXIT_USAGE


# The environment


def test_a_variable_that_wins_over_the_profile(user: Machine) -> None:
    user.environ |= {"MEMRELAY_NAMESPACE": "elsewhere", "MEMRELAY_URL": ""}
    found = user.examine()
    assert found["environment"].state == WARNING
    assert "MEMRELAY_NAMESPACE" in found["environment"].detail
    assert found["environment"].command == "unset MEMRELAY_NAMESPACE"
    assert (states(found, PROBLEM), user.run("doctor")) == ([], EXIT_OK)


def test_a_variable_that_says_the_same_does_not(user: Machine) -> None:
    user.environ["MEMRELAY_NAMESPACE"] = "default"
    assert user.examine()["environment"].state == OK


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MEMRELAY_CUSTODY", "none"),
        ("MEMRELAY_PRIVATE_KEY", "5e5e"),
        ("MEMRELAY_NAMESPACE", "x" * 200),
        ("MEMRELAY_URL", "ftp://example.org"),
        ("MEMRELAY_RELAYER_KEY", "12"),
        ("MEMRELAY_ACCOUNT_ID", "0x12"),
        ("MEMRELAY_ALLOW_INSECURE", "perhaps"),
    ],
)
def test_a_variable_that_spoils_a_profile(user: Machine, variable: str, value: str) -> None:
    user.environ |= {"MEMRELAY_CUSTODY": "auto", variable: value}
    found = the_problem(user.examine(), "profile")
    assert found.detail.endswith(f" The profile is well: {variable} is wrong.")
    assert value not in found.detail
    assert found.command == f"unset {variable}"
    del user.environ[variable]
    assert user.examine()["profile"].state == OK


def test_variables_that_spoil_a_profile_are_all_named(user: Machine) -> None:
    user.environ |= {"MEMRELAY_URL": "x", "MEMRELAY_CUSTODY": "x", "MEMRELAY_NAMESPACE": "x"}
    found = the_problem(user.examine(), "profile")
    assert found.command == "unset MEMRELAY_URL MEMRELAY_CUSTODY"


def test_a_wrong_profile_is_not_blamed_on_a_variable(user: Machine) -> None:
    user.write(custody="none")
    user.environ["MEMRELAY_NAMESPACE"] = "x" * 200
    found = the_problem(user.examine(), "profile")
    assert found.command == f"${{EDITOR:-vi}} {user.profile}"


def test_the_environment_alone_is_enough(user: Machine) -> None:
    values = json.loads(user.profile.read_text())
    user.profile.unlink()
    for name in ("url", "account_id", "private_key"):
        user.environ[f"MEMRELAY_{name.upper()}"] = values[name]
    found = user.examine()
    assert states(found, PROBLEM) == []
    assert found["profile"].detail.startswith("the environment: ")


# What was seen


def test_a_damaged_history(user: Machine) -> None:
    seen = user.history()
    seen.write_text("{")
    found = user.examine()
    assert "damaged" in the_problem(found, "history").detail
    assert found["key"].state == SKIPPED
    user.typed(found["history"])
    assert states(user.examine(), PROBLEM) == []


def test_a_history_that_others_may_read(user: Machine) -> None:
    user.history().chmod(0o640)
    found = the_problem(user.examine(), "history")
    user.typed(found)
    assert states(user.examine(), PROBLEM) == []


# Reaching the relayer


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
def answering(answers: dict[str, object], certificate: Path | None = None) -> Iterator[str]:
    """The URL of a server with these JSON answers by path, and 404 for others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path in answers
            body = json.dumps(answers.get(self.path)).encode()
            self.send_response(200 if found else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Nothing on the console."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *arguments: None  # a refused handshake is what is wanted
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


def test_a_stopped_relayer(user: Machine) -> None:
    with listening() as url:
        pass
    user.write(url=url)
    found = user.examine()
    assert the_problem(found, "relayer").command == "relayer serve"
    assert "Nothing listens" in found["relayer"].detail
    assert [name for name in DEPENDENT[1:] if found[name].state != SKIPPED] == []


def test_a_relayer_that_hangs(user: Machine) -> None:
    with listening() as url:
        user.write(url=url)
        found = the_problem(user.examine(timeout_s=0.2), "relayer")
    assert "does not answer in time" in found.detail
    assert found.command == f"curl -v {url}/health"


def test_a_connection_that_breaks(user: Machine) -> None:
    with listening(closes=True) as url:
        user.write(url=url)
        assert "breaks" in the_problem(user.examine(), "relayer").detail


def test_a_name_without_an_address(user: Machine, monkeypatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    user.write(url="https://relayer.invalid")
    found = the_problem(user.examine(), "relayer")
    assert "No address" in found.detail
    assert found.command == "nslookup relayer.invalid"


def test_a_port_without_tls(user: Machine, shared_relayer) -> None:
    user.write(url=shared_relayer.url.replace("http://", "https://"))
    assert "does not speak TLS" in the_problem(user.examine(), "relayer").detail


def test_a_certificate_that_nobody_vouches_for(user: Machine, tmp_path: Path) -> None:
    with answering({}, certificate=self_signed(tmp_path / "certificate.pem")) as url:
        user.write(url=url)
        found = the_problem(user.examine(), "relayer")
    assert "certificate of 127.0.0.1 does not hold" in found.detail
    assert found.command.startswith("openssl s_client -connect 127.0.0.1:")


def self_signed(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, sealing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, form, sealing) + certificate.public_bytes(pem))
    return path


@pytest.mark.parametrize("answers", [{}, {"/health": []}, {"/health": {"up": True}}], ids=str)
def test_something_else_than_a_relayer(user: Machine, answers) -> None:
    with answering(answers) as url:
        user.write(url=url)
        found = the_problem(user.examine(), "relayer")
    assert "Something else than a relayer" in found.detail
    assert found.command == f"curl -i {url}"


def test_another_protocol(user: Machine) -> None:
    answers = {"/health": {"status": "ok"}, "/version": {"apiVersion": "2.0.0"}}
    with answering(answers) as url:
        user.write(url=url)
        found = user.examine()
    assert the_problem(found, "version").command == "pip install --upgrade memrelay"
    assert found["key"].state == SKIPPED


# The clock


class Clock:
    """The time of a machine that may be wrong."""

    shift_s = 0

    def __call__(self) -> float:
        return time.time() + self.shift_s


@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_wrong(user: Machine, shift_s: int) -> None:
    found = user.examine(clock=lambda: time.time() + shift_s)
    assert "off the relayer's; 300 are allowed" in the_problem(found, "clock").detail
    assert "sudo" in found["clock"].command
    assert (found["key"].state, found["identity"].state) == (SKIPPED, SKIPPED)


def test_a_clock_that_still_works(user: Machine) -> None:
    found = user.examine(clock=lambda: time.time() + 120)
    assert (found["clock"].state, states(found, PROBLEM)) == (WARNING, [])


def test_a_clock_that_only_the_relayer_finds_wrong(user: Machine) -> None:
    """A proxy that answers for the relayer may tell another time."""
    clock = Clock()
    found = {}
    for finding in examine(Case(environ=user.environ, clock=clock)):
        found[finding.check] = finding
        clock.shift_s = HOUR_S if finding.check == "identity" else clock.shift_s
    assert "too far apart" in the_problem(found, "key").detail
    assert "sudo" in found["key"].command


# The relayer's identity


def test_another_relayer_than_the_pinned_one(user: Machine) -> None:
    other = Identity.generate().public_key.hex()
    user.write(relayer_key=other)
    found = the_problem(user.examine(), "identity")
    assert f"than the trusted one, {other[:4]}…{other[-4:]}" in found.detail
    assert found.command == "memrelay trust KEY"


def test_a_wrong_pin_in_the_environment(user: Machine) -> None:
    user.environ["MEMRELAY_RELAYER_KEY"] = Identity.generate().public_key.hex()
    found = user.examine()
    assert the_problem(found, "identity").command == "export MEMRELAY_RELAYER_KEY=KEY"
    assert found["grants"].state == SKIPPED


# A refused key


def test_a_revoked_key_by_the_owners_list(user: Machine) -> None:
    user.add_key("coder", "coder")
    assert user.run("keys", "revoke", "coder") == EXIT_OK
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail == "The owner revoked this key."
    assert found.command == "memrelay agents provision coder"


def test_an_expired_key_by_the_owners_list(user: Machine) -> None:
    user.add_key("coder", "coder", expires=timedelta(milliseconds=1))
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail.startswith("This key's grant ended at 2")
    assert found.command == "memrelay agents provision coder"
    assert user.run(*found.command.split()[1:]) == EXIT_OK
    assert states(user.examine(agent="coder"), PROBLEM) == []


def test_a_key_that_was_never_granted(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    user.write(path, private_key=Identity.generate().seed_hex())
    found = the_problem(user.examine(agent="coder"), "key")
    assert "was never granted" in found.detail
    assert found.command == "memrelay agents provision coder"


def test_a_refused_key_outside_of_the_agents_folder(user: Machine) -> None:
    """The main profile tells all the same; a new key needs another file."""
    path = user.add_key("coder", "coder", expires=timedelta(milliseconds=1))
    moved = path.rename(user.home / "coder.json")
    for options in ({"profile": str(moved)}, {}):
        found = the_problem(user.examine(**options), "key")
        assert found.detail.startswith("This key's grant ended at 2")
        assert found.command == "memrelay keys add --namespace coder --out NEW.json"
        user.environ["MEMRELAY_PROFILE"] = str(moved)


def test_a_refused_key_without_an_owner(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    assert states(user.examine(agent="coder"), PROBLEM) == []  # it worked once
    assert user.run("keys", "revoke", "coder") == EXIT_OK
    user.profile.unlink()
    found = the_problem(user.examine(profile=str(path)), "key")
    public_key = Settings.load(path, environ={}).identity.public_key.hex()
    assert "accepted this key before" in found.detail
    assert found.command == f"relayer doctor --key {public_key[:8]}"


def test_an_owner_of_another_relayer_is_not_asked(user: Machine) -> None:
    user.add_key("coder", "coder", expires=timedelta(milliseconds=1))
    user.write(url="http://127.0.0.1:9")
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail == "The relayer does not accept this key: never granted, revoked or ended."
    assert found.command.startswith("relayer doctor --key ")


def test_an_account_that_the_relayer_does_not_know(user: Machine) -> None:
    founder = Identity.generate()
    account_id = account_text(account_id_of(founder.public_key))
    user.write(account_id=account_id, private_key=founder.seed_hex())
    found = the_problem(user.examine(), "key")
    assert "does not know this account" in found.detail
    assert found.command == "relayer account list"


def test_an_owner_that_is_refused_too(user: Machine) -> None:
    user.add_key("coder", "coder")
    founder = Identity.generate()
    account_id = account_text(account_id_of(founder.public_key))
    user.write(account_id=account_id, private_key=founder.seed_hex())
    agent = user.folder / "agents" / "coder.json"
    user.write(agent, account_id=account_id, private_key=Identity.generate().seed_hex())
    found = the_problem(user.examine(agent="coder"), "key")
    assert found.detail.startswith("The owner's key is refused, too")
    assert found.command == "relayer account list"


def test_a_key_for_another_account(user: Machine) -> None:
    right = json.loads(user.profile.read_text())["account_id"]
    wrong = "0x" + "ab" * 32
    user.write(account_id=wrong)
    found = the_problem(user.examine(), "key")
    assert found.detail == f"This key belongs to the account {right}, not to {wrong}."
    assert found.command == f"${{EDITOR:-vi}} {user.profile}"


def test_a_wrong_account_in_the_environment(user: Machine) -> None:
    user.environ["MEMRELAY_ACCOUNT_ID"] = "0x" + "ab" * 32
    found = user.examine()
    assert the_problem(found, "key").command == "export MEMRELAY_ACCOUNT_ID=ID"
    assert found["environment"].command == "unset MEMRELAY_ACCOUNT_ID"


# What the key holds


def test_a_namespace_that_the_key_does_not_hold(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    user.write(path, namespace="private")
    found = user.examine(agent="coder")
    assert "does not hold the namespace private; it holds coder" in found["namespace"].detail
    assert the_problem(found, "namespace").command == f"${{EDITOR:-vi}} {path}"
    assert found["search"].state == SKIPPED
    assert states(user.examine(agent="coder", namespace="coder"), PROBLEM) == []


def test_a_wrong_namespace_in_the_environment(user: Machine) -> None:
    path = user.add_key("coder", "coder")
    user.environ |= {"MEMRELAY_PROFILE": str(path), "MEMRELAY_NAMESPACE": "private"}
    found = the_problem(user.examine(), "namespace")
    assert found.command == "export MEMRELAY_NAMESPACE=coder"


def test_a_grant_that_ends_soon(user: Machine) -> None:
    user.add_key("coder", "coder", expires=timedelta(days=3))
    found = user.examine(agent="coder")
    assert (found["namespace"].state, states(found, PROBLEM)) == (WARNING, [])
    assert found["namespace"].command == "memrelay agents rotate coder --expires 90d"
    assert user.run(*found["namespace"].command.split()[1:]) == EXIT_OK
    assert user.examine(agent="coder")["namespace"].state == OK


def test_a_client_that_sends_no_keys(user: Machine) -> None:
    user.write(custody="managed")
    found = user.examine()
    assert the_problem(found, "custody").command == f"${{EDITOR:-vi}} {user.profile}"
    assert found["search"].state == SKIPPED


# What the account may do


def fill(client: SyncMemoryClient) -> None:
    """Remember until the relayer refuses."""
    with suppress(QuotaExceeded):
        for number in count():
            client.remember(f"Note {number}.")


def test_an_account_that_is_nearly_full_and_then_full(machine: Machine, small_relayer) -> None:
    machine.init(small_relayer.url)
    assert machine.examine()["storage"].state == OK
    with SyncMemoryClient.from_settings(Settings.load(machine.profile, environ={})) as client:
        while client.usage().storage_bytes < 0.9 * STORAGE_BYTES_MAX:
            client.remember(f"{client.usage().memory_count} " + "long " * 1000)
        assert machine.examine()["storage"].state == WARNING
        fill(client)
    found = the_problem(machine.examine(), "storage")
    assert "no room for more" in found.detail
    assert found.command == "memrelay forget ID"


def test_a_relayer_without_an_embedder(machine: Machine, small_relayer) -> None:
    machine.init(small_relayer.url)
    found = machine.examine()
    assert (found["search"].state, states(found, PROBLEM)) == (WARNING, [])
    assert "by their words only" in found["search"].detail
    assert found["search"].command == "relayer doctor"


async def test_a_memory_that_cannot_be_opened(user: Machine, shared_relayer) -> None:
    with SyncMemoryClient.from_settings(Settings.load(user.profile, environ={})) as client:
        client.remember("The memrelay doctor opens memories.")
        account = bytes.fromhex(client.settings.account_id[2:])
    connection = await asyncpg.connect(shared_relayer.environment["RELAYER_DATABASE_URL"])
    try:
        damage = """UPDATE blobs b SET bytes = $2 FROM memories m WHERE m.account_id = $1
            AND b.account_id = m.account_id AND b.blob_id = m.blob_id"""
        assert await connection.execute(damage, account, b"damaged") == "UPDATE 1"
    finally:
        await connection.close()
    found = user.examine()
    assert (found["search"].state, states(found, PROBLEM)) == (WARNING, [])
    assert found["search"].detail == "1 memories could not be opened."
    assert found["search"].command == "relayer check"


# Gateways


@pytest.mark.parametrize("agent", [None, "coder"])
def test_commands_on_what_serves_all_name_the_profile_and_no_agent(user: Machine, agent) -> None:
    user.add_key("coder", "coder")
    path = user.profile.rename(user.folder / "my profile.json")
    options = {"profile": str(path)} | ({"agent": agent} if agent else {})
    found = user.examine(**options)
    told = f"agents that need one have `memrelay gateway --profile '{path}'`"
    assert found["gateway"].detail.endswith(told)
    openclaw(user, "{}")
    told = f"`memrelay openclaw install --profile '{path}'` sets it up"
    assert user.examine(**options)["openclaw"].detail.endswith(told)
    openclaw(user, '{"plugins": {"slots": {"memory": "memrelay"}}}')
    spooled(user, HOUR_S)
    found = user.examine(**options)
    assert states(found, PROBLEM) == ["openclaw", "gateway"]
    assert found["openclaw"].command == f"memrelay openclaw install --profile '{path}'"
    assert found["gateway"].command == f"memrelay gateway --profile '{path}'"
    assert found["spool"].command == f"memrelay gateway --profile '{path}'"


@contextmanager
def running_gateway(machine: Machine) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "memrelay", "gateway", "--port", "0"],
        env=machine.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert "ready" in process.stdout.readline()
        yield process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_a_running_gateway(user: Machine) -> None:
    """capability 0.44: health, version, masked key, namespace and switches are told."""
    (user.folder / "gateway.toml").write_text("auto_capture = false\n")
    key = Settings.load(user.profile, environ={}).masked_key
    with running_gateway(user) as process:
        found = user.examine()
    assert states(found, PROBLEM) == []
    expected = f"process {process.pid} holds {key}; recall is on, capture off"
    assert found["gateway"].detail == expected
    assert found["relayer"].detail.endswith("answers: ok")
    assert found["version"].detail.startswith(f"relayer {__version__}, protocol 1.")
    assert f"key {key} of account 0x" in found["profile"].detail
    assert found["namespace"].detail == "default is held"


def test_a_gateway_that_does_not_reach_its_relayer(user: Machine) -> None:
    with listening() as url:
        pass
    user.write(url=url)
    with running_gateway(user):
        found = user.examine()
    assert (found["gateway"].state, found["gateway"].command) == (
        WARNING,
        "memrelay gateway status",
    )


def test_a_gateway_that_was_killed(user: Machine) -> None:
    with running_gateway(user) as process:
        process.kill()
        process.wait()
        found = the_problem(user.examine(), "gateway")
    assert "does not answer" in found.detail
    assert found.command == "memrelay gateway"


def test_another_program_at_the_gateways_place(user: Machine) -> None:
    with running_gateway(user):
        path = user.folder / "gateway.json"
        write_private(path, {**json.loads(path.read_text()), "token": "00"})
        found = the_problem(user.examine(), "gateway")
    assert "Another gateway answers" in found.detail
    assert found.command == f"rm {path}"


def test_an_endpoint_that_others_may_read(user: Machine) -> None:
    path = user.folder / "gateway.json"
    path.touch(mode=0o644)
    path.chmod(0o644)
    assert "Others may read" in the_problem(user.examine(), "gateway").detail


def spooled(machine: Machine, age_s: int) -> Path:
    """The file of a turn that a gateway kept so long ago."""
    folder, then_ns = machine.folder / "spool", time.time_ns() - age_s * 1_000_000_000
    before = set(folder.glob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: then_ns)
        spool = Spool(folder, bytes_max=1 << 20, turns_max=100)
        spool.put(SpoolKey.of(Identity.generate()), b"a turn")
    [path] = set(folder.iterdir()) - before
    return path


def test_turns_that_wait(user: Machine) -> None:
    spooled(user, 5)
    found = user.examine()["spool"]
    assert (found.state, found.detail[:22]) == (OK, "1 captured turns wait ")
    spooled(user, HOUR_S)
    found = user.examine()["spool"]
    assert (found.state, found.command) == (WARNING, "memrelay gateway")
    assert found.detail.startswith("2 captured turns wait for the relayer, the oldest for 360")


def test_turns_that_are_damaged(user: Machine) -> None:
    path = spooled(user, 5)
    path = path.rename(path.with_suffix(".damaged"))
    found = user.examine()["spool"]
    assert (found.state, found.detail[:26]) == (WARNING, "1 captured turns are damag")
    user.typed(found)
    assert not path.exists()
    assert user.examine()["spool"].state == OK


def openclaw(machine: Machine, text: str) -> Path:
    path = machine.home / ".openclaw" / "openclaw.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_an_openclaw_that_does_not_use_memrelay(user: Machine) -> None:
    openclaw(user, '{"plugins": {"slots": {"memory": "memory-core"}}}')
    found = user.examine()
    assert (found["openclaw"].state, found["gateway"].state) == (SKIPPED, SKIPPED)


def test_an_openclaw_that_is_set_up_in_part(user: Machine) -> None:
    path = openclaw(user, "{}")
    user.environ["PATH"] = ""  # no OpenClaw of this machine
    assert user.run("openclaw", "install", "--yes") == EXIT_OK
    found = the_problem(user.examine(), "gateway")
    assert found.detail == "No gateway runs, and OpenClaw needs one."
    with running_gateway(user):
        assert states(user.examine(), PROBLEM) == []
        values = json.loads(path.read_text())
        values["plugins"]["slots"]["memory"] = "memory-core"
        values["plugins"]["entries"]["memrelay"]["hooks"]["allowConversationAccess"] = False
        path.write_text(json.dumps(values))
        found = the_problem(user.examine(), "openclaw")
    assert "plugins.slots.memory, plugins.entries.memrelay" in found.detail
    assert found.command == "memrelay openclaw install"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('// mine\n{"plugins": {"slots": {"memory": "memrelay"}}}', "not plain JSON"),
        ('{"plugins": {"enabled": false, "allow": ["memrelay"]}}', "plugins are off"),
        ('{"plugins": {"deny": ["memrelay"]}}', "plugins.deny"),
    ],
)
def test_an_openclaw_that_cannot_use_memrelay(user: Machine, text: str, named: str) -> None:
    openclaw(user, text)
    found = user.examine()
    assert states(found, PROBLEM) == ["openclaw", "gateway"]
    assert named in found["openclaw"].detail


# Hermes


@pytest.fixture
def hermes(user: Machine) -> Machine:
    """A machine with a Hermes whose Python has memrelay, and that is set up."""
    (user.home / ".hermes").mkdir()
    user.environ["PATH"] = str(user.home / "bin")
    user_python(user, "echo True")
    assert user.run("hermes", "install", "--yes") == EXIT_OK
    assert user.examine()["hermes"] == Finding(
        check="hermes", state=OK, detail=str(user.home / ".hermes")
    )
    return user


def user_python(machine: Machine, script: str) -> Path:
    """The command hermes, and what stands in for the Python beside it."""
    folder = machine.home / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in (
        ("hermes", "#!/usr/bin/env python3\n"),
        ("python", f"#!/bin/sh\n{script}\n"),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "python"


def test_a_hermes_that_does_not_use_memrelay(user: Machine) -> None:
    (user.home / ".hermes").mkdir()
    (user.home / ".hermes" / "config.yaml").write_text("memory:\n  provider: mem0\n")
    found = user.examine()["hermes"]
    assert (found.state, found.command) == (SKIPPED, None)
    assert found.detail.endswith("`memrelay hermes install` sets it up")


def test_a_hermes_that_has_chosen_another_provider(hermes: Machine) -> None:
    (hermes.home / ".hermes" / "config.yaml").write_text("memory:\n  provider: mem0\n")
    found = the_problem(hermes.examine(), "hermes")
    assert "has not chosen it" in found.detail
    assert found.command == "memrelay hermes install"
    path = hermes.profile.rename(hermes.folder / "my profile.json")
    found = hermes.examine(profile=str(path))["hermes"]
    assert found.command == f"memrelay hermes install --profile '{path}'"


def test_a_hermes_whose_provider_is_of_another_version(hermes: Machine) -> None:
    (hermes.home / ".hermes" / "plugins" / "memrelay" / "plugin.yaml").write_text("name: x\n")
    assert "or another version's" in the_problem(hermes.examine(), "hermes").detail
    assert hermes.run("hermes", "install", "--yes") == EXIT_OK
    assert hermes.examine()["hermes"].state == OK


def test_a_hermes_whose_configuration_is_not_plain(hermes: Machine) -> None:
    path = hermes.home / ".hermes" / "config.yaml"
    path.write_text("memory: {provider: memrelay}\n")
    found = hermes.examine()["hermes"]
    assert (found.state, found.command) == (WARNING, f"${{EDITOR:-vi}} {path}")


def test_a_hermes_with_wrong_settings(hermes: Machine) -> None:
    path = hermes.home / ".hermes" / "memrelay.json"
    path.write_text('{"colour": "red"}')
    found = the_problem(hermes.examine(), "hermes")
    assert "colour" in found.detail
    assert found.command == f"${{EDITOR:-vi}} {path}"


def test_a_hermes_whose_profile_is_gone(hermes: Machine) -> None:
    path = hermes.home / ".hermes" / "memrelay.json"
    path.write_text(json.dumps({"profile": str(hermes.home / "gone.json")}))
    found = the_problem(hermes.examine(), "hermes")
    assert found.detail.endswith("gone.json, which is not there.")
    assert hermes.run("hermes", "install", "--yes") == EXIT_OK
    assert hermes.examine()["hermes"].state == OK


def test_a_hermes_whose_python_lacks_memrelay(hermes: Machine) -> None:
    python = user_python(hermes, "echo True; exit 1")
    found = the_problem(hermes.examine(), "hermes")
    assert found.command == f"{python} -m pip install memrelay"
    user_python(hermes, "echo False; exit 1")
    found = the_problem(hermes.examine(), "hermes")
    assert found.command == f"uv pip install --python {python} memrelay"


def test_a_hermes_whose_python_is_not_found_or_does_not_run(hermes: Machine) -> None:
    user_python(hermes, "").write_bytes(b"\x7fELF no program")
    found = hermes.examine()["hermes"]
    assert (found.state, "did not run" in found.detail) == (WARNING, True)
    (hermes.home / "bin" / "hermes").unlink()
    found = hermes.examine()["hermes"]
    assert (found.state, "not on the PATH" in found.detail) == (WARNING, True)
