"""The image, the unit and the proxy's file, carried out and used: what `make test-deploy` runs.

Not here: how (`image.py`, `booted.py`), linters (`linters.py`), what CI runs (`../test_deploy.py`).

- The client is real and outside, as an agent's would be.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.booted import SECRETS, UNIT, Machine, booted, installed
from tests.deploy.dockerfile import STEPS
from tests.deploy.image import ROOT, Built, build, container, first_of
from tests.life import until
from tests.processes import lasting_port, lasting_ports, running_relayer

TOKEN = "registration_token-of-a-test"
FERRY = "The ferry leaves at seven."


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image, by the steps of its Dockerfile."""
    return build(tmp_path_factory.mktemp("image"))


def memrelay(profile: Path, *arguments: str, code: int = 0) -> str:
    """What the client's command prints; it must end with this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "memrelay", *arguments, "--profile", str(profile), "--json"],
        env={k: v for k, v in os.environ.items() if not k.startswith("MEMRELAY_")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def answers(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/health", timeout=10).json()["status"] == "ok")
    except (httpx.TransportError, ValueError):
        return False


def recalled(profile: Path, question: str = "When does the ferry go?") -> list[str]:
    told = json.loads(memrelay(profile, "recall", question))
    return [one["text"] for one in told["results"]]


def in_container(first: int, user: str, environment: dict[str, str], *command: str) -> int:
    """The exit status of a command beside the container's own process, as `exec` would run it."""
    inside = [
        "nsenter",
        "-t",
        str(first),
        "-m",
        "-p",
        "-r",
        "-w",
        "--setuid",
        user,
        "--setgid",
        user,
    ]
    return subprocess.run([*inside, *command], env=environment, check=False).returncode


def test_every_line_that_makes_files_was_carried_out(image: Built) -> None:
    wanted = [one for one in image.stage.instructions if one.word in STEPS]
    assert image.steps == [f"{one.word} {one.rest}" for one in wanted]
    assert not (image.folder / "opt/memrelay/bin/pip").exists()
    assert not (image.folder / "src").exists()


def test_a_container_serves_from_a_read_only_root_as_a_user_without_rights(
    image: Built, tmp_path: Path
) -> None:
    data, profile, port = tmp_path / "data", tmp_path / "profile.json", lasting_port()
    data.mkdir(mode=0o700)
    url, user = f"http://127.0.0.1:{port}", image.stage.fact("USER").rest.split(":")[0]
    chosen = {"RELAYER_PORT": str(port), "RELAYER_REGISTRATION_TOKEN": TOKEN}
    arguments = image.stage.fact("CMD").arguments
    with container(image, data, *arguments, **chosen) as process:
        until(lambda: answers(url), "it serves")
        memrelay(profile, "init", url, code=1)  # without the token
        memrelay(profile, "init", url, "--token", TOKEN)
        memrelay(profile, "remember", FERRY)
        until(lambda: recalled(profile) == [FERRY], "it is found, by meaning")
        first = first_of(process)
        status = Path(f"/proc/{first}/status").read_text()
        assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{kind}:\t{0:016x}" in status
        assert "NoNewPrivs:\t1" in status
        check = image.stage.fact("HEALTHCHECK").arguments
        assert in_container(first, user, image.environment, *check) == 0
        for place in ("/opt/memrelay/x", "/etc/x", "/root/x"):
            assert in_container(first, user, image.environment, "touch", place) != 0
    assert process.returncode == 0, "STOPSIGNAL ended it well"
    left = {path.name for path in data.iterdir()}
    assert left - {"metrics"} == {"postgres", "relayer.key", "relayer.lock"}
    with container(image, data, *arguments, **chosen, RELAYER_EMBEDDER="multilingual"):
        until(lambda: answers(url), "it serves again")
        asked = "Wann fährt die Fähre ab?"
        until(
            lambda: recalled(profile, asked) == [FERRY], "it is found, by what it means in German"
        )


def test_the_health_check_fails_where_nobody_serves(image: Built, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check = image.stage.fact("HEALTHCHECK").arguments
    assert check[:2] == ["python", "-m"]
    with container(image, tmp_path, "--version") as process:
        assert process.wait(timeout=120) == 0
    done = subprocess.run(["chroot", str(image.folder), *check], env=image.environment, check=False)
    assert done.returncode == 1


@pytest.fixture(scope="session")
def machine_port() -> int:
    return lasting_port()


@pytest.fixture(scope="session")
def machine(
    image: Built, machine_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A booted system with the service, enabled."""
    folder = installed(image, tmp_path_factory.mktemp("machine"), machine_port)
    with booted(folder) as running:
        yield running


def test_the_service_lives_within_all_of_its_unit(
    machine: Machine, machine_port: int, tmp_path: Path
) -> None:
    url, profile = f"http://127.0.0.1:{machine_port}", tmp_path / "profile.json"
    until(lambda: answers(url), "the service serves")
    assert machine.run("systemctl", "is-active", UNIT) == "active"
    memrelay(profile, "init", url, code=1)
    memrelay(profile, "init", url, "--token", f"{SECRETS[0]}-of-a-test")
    memrelay(profile, "remember", FERRY)
    until(lambda: recalled(profile) == [FERRY], "it is found, by meaning")
    sent = {"Authorization": f"Bearer {SECRETS[1]}-of-a-test"}
    assert httpx.get(f"{url}/metrics", headers=sent).status_code == 200
    assert httpx.get(f"{url}/metrics").status_code == 403
    main = machine.run("systemctl", "show", "--value", "--property", "MainPID", UNIT)
    status = machine.run("grep", "-E", "Seccomp:|CapBnd:|NoNewPrivs:", f"/proc/{main}/status")
    assert status.split() == ["CapBnd:", f"{0:016x}", "NoNewPrivs:", "1", "Seccomp:", "2"]


def test_a_reload_replaces_the_workers(machine: Machine, machine_port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{machine_port}"
    until(lambda: answers(url), "the service serves")
    main = machine.run("systemctl", "show", "--value", "--property", "MainPID", UNIT)
    before = set(machine.run("pgrep", "-P", main, "-f", "relayer.workers").split())
    assert len(before) == 2
    machine.run("systemctl", "reload", UNIT)

    def replaced() -> bool:
        assert answers(url)
        now = set(machine.run("pgrep", "-P", main, "-f", "relayer.workers").split())
        return len(now) == 2 and not now & before

    until(replaced, "two others serve")
    assert machine.run("systemctl", "is-active", UNIT) == "active"


def test_a_stop_leaves_nothing_running(machine: Machine, machine_port: int) -> None:
    until(lambda: answers(f"http://127.0.0.1:{machine_port}"), "the service serves")
    machine.run("systemctl", "stop", UNIT)
    shown = machine.run("systemctl", "show", "--property", "ActiveState,Result", UNIT)
    assert set(shown.split()) == {"ActiveState=inactive", "Result=success"}
    assert machine.run("pgrep", "-u", "memrelay") == ""


@contextmanager
def proxy(folder: Path, here: int, there: int) -> Iterator[str]:
    """Caddy with the file of the composition, without TLS, in front of a relayer here."""
    text = (ROOT / "deploy/compose/Caddyfile").read_text()
    assert text.count("relayer:8000 {") == 1
    file = folder / "Caddyfile"
    text = text.replace("relayer:8000 {", f"127.0.0.1:{there} {{")
    assert text.startswith("{\n")
    file.write_text(text.replace("{\n", "{\n\tadmin off\n", 1))
    process = subprocess.Popen(
        ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "MEMRELAY_HOST": f"http://:{here}"},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{here}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def test_the_proxy_passes_on_what_it_should(tmp_path: Path, model_dir: Path) -> None:
    here, there = lasting_ports(2)
    chosen = {"RELAYER_REGISTRATION_TOKEN": TOKEN, "RELAYER_METRICS_TOKEN": f"{TOKEN}-2"}
    address = {"RELAYER_PUBLIC_URL": f"http://127.0.0.1:{here}", "RELAYER_REGISTRATION": "token"}
    with (
        proxy(tmp_path, here, there) as url,
        running_relayer(
            tmp_path / "data", model_dir, "--port", str(there), **chosen, **address
        ) as relayer,
    ):
        until(lambda: answers(url), "the proxy passes requests on")
        profile = tmp_path / "profile.json"
        memrelay(profile, "init", url, "--token", TOKEN)
        memrelay(profile, "remember", FERRY)
        until(lambda: recalled(profile) == [FERRY], "it is found, by meaning")
        sent = {"Authorization": f"Bearer {TOKEN}-2"}
        assert httpx.get(f"{relayer.url}/metrics", headers=sent).status_code == 200
        places = "/metrics /metrics/ /metrics/x //metrics /%6detrics /v1/../metrics /below/metrics"
        for path in places.split():
            answer = httpx.get(url + path, headers=sent)
            assert answer.status_code == 404, path
        for name in ("metrics", "team/metrics", "metrics/team"):
            memrelay(profile, "remember", FERRY, "--namespace", name)
            memrelay(profile, "forget", "--namespace", name, "--yes")
            assert "requests_total" not in answer.text
        assert httpx.post(f"{url}/v1/import", content=bytes(10 * 10**6)).status_code == 413
