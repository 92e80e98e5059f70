"""What linters say of `deploy/`: each file by somebody else's rules, offline.

Not here: our own rules (`../test_deploy.py`), running anything (`run_file.py`).
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.image import ROOT

DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".venv-deploy"
EXPOSURE_MAX = 1.5  # of 10; a service without protections has 9.6


def told(*command: str | Path, **environment: str) -> str:
    """What a linter prints, complaints aside; it must be content."""
    done = subprocess.run(
        command,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dockerfile() -> None:
    told(TOOLS / "node_modules/.bin/dockerfile-utils", "lint", DEPLOY / "Dockerfile")


def test_a_dockerfile_that_is_none_is_seen(tmp_path: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (tmp_path / "Dockerfile").write_text(text.replace("STOPSIGNAL SIGTERM", "STOPSIGNAL"))
    with pytest.raises(AssertionError, match="STOPSIGNAL"):
        told(TOOLS / "node_modules/.bin/dockerfile-utils", "lint", tmp_path / "Dockerfile")


def test_composition() -> None:
    checker = TOOLS / "bin/check-jsonschema"
    told(checker, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose/compose.yaml")


def test_a_composition_that_is_none_is_seen(tmp_path: Path) -> None:
    text = (DEPLOY / "compose/compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(text.replace("healthcheck:", "health_check:"))
    checker = TOOLS / "bin/check-jsonschema"
    with pytest.raises(AssertionError, match="health_check"):
        told(checker, "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml")


@pytest.mark.parametrize("name", ["namespace", "settings", "relayer", "network"])
def test_manifest(name: str) -> None:
    told(TOOLS / "bin/kubernetes-validate", "--strict", DEPLOY / f"kubernetes/{name}.yaml")


def test_a_manifest_that_is_none_is_seen(tmp_path: Path) -> None:
    text = (DEPLOY / "kubernetes/relayer.yaml").read_text()
    (tmp_path / "relayer.yaml").write_text(text.replace("runAsNonRoot:", "runAsNobody:"))
    with pytest.raises(AssertionError, match="runAsNobody"):
        told(TOOLS / "bin/kubernetes-validate", "--strict", tmp_path / "relayer.yaml")


def test_proxy(tmp_path: Path) -> None:
    file = DEPLOY / "compose/Caddyfile"
    chosen = {"HOME": str(tmp_path), "MEMRELAY_HOST": "memory.example.org"}
    told("caddy", "adapt", "--config", file, "--validate", **chosen)
    assert told("caddy", "fmt", file, **chosen) == file.read_text()


def test_script_makes_secrets_once(tmp_path: Path) -> None:
    script = tmp_path / "secrets.sh"
    script.write_bytes((DEPLOY / "compose/secrets.sh").read_bytes())
    told("shellcheck", script)
    told("sh", script)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert made["database_password"] in made["database_url"]
    assert len({made[name] for name in made}) == 4
    assert all(len(text) >= 64 for text in made.values())
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    told("sh", script)
    assert made == {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}


def test_unit(tmp_path: Path) -> None:
    unit = tmp_path / "memrelay-relayer.service"
    text = (DEPLOY / "systemd/memrelay-relayer.service").read_text()
    unit.write_text(text.replace("/opt/memrelay/bin/relayer serve", "/bin/true serve"))
    told("systemd-analyze", "verify", "--man=no", unit)
    shown = told("systemd-analyze", "security", "--offline=true", unit)
    match = re.search(r"Overall exposure level for \S+ ([\d.]+)", shown)
    assert match is not None
    assert float(match[1]) <= EXPOSURE_MAX, shown
