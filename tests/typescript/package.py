"""The TypeScript client as its users have it: types, vectors and a live relayer, in each runtime.

`make test-typescript` runs this file; `make test`, which needs no Node, does not. The tests
themselves stand in `client/typescript/test/`.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from memrelay import SyncMemoryClient
from memrelay.archive_reader import open_archive
from memrelay.archive_writer import export_archive
from memrelay.secure_files import write_private
from tests import generate_typescript
from tests.processes import RunningRelayer, lasting_port, running_relayer

PACKAGE = generate_typescript.PACKAGE
RUN_S_MAX = 300
# Deno lets a program do what it is allowed to, and no more.
PROGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "deno": (
        "@deno/*/deno",
        ("run", "--quiet", "--allow-net"),
        ("test", "--no-check", "--allow-all"),
    ),
    "bun": ("@oven/bun-*/bin/bun", ("run",), ("test", f"--timeout={RUN_S_MAX * 1000}")),
}


def run(
    *command: str | Path, folder: Path = PACKAGE, environment: Mapping[str, str] | None = None
) -> str:
    """Return what a program prints; its words are shown where it fails."""
    done = subprocess.run(
        command,
        cwd=folder, env=os.environ | (environment or {}), timeout=RUN_S_MAX, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def npm(script: str, **environment: str) -> None:
    """Run a script of the package."""
    run("npm", "run", "--silent", script, environment=environment)


def program(runtime: str) -> Path:
    """Return the one program of a runtime that was installed for this platform."""
    packages = Path(os.environ["TYPESCRIPT_RUNTIMES"]) / "node_modules"
    [found] = packages.glob(PROGRAMS[runtime][0])
    return found


def run_test(runtime: str, name: str, **environment: str) -> str:
    """Run a bundled test, which Node runs, in another runtime."""
    npm("bundle:test")
    file = f"./build/{name}.test.js"
    command: list[str | Path] = [program(runtime), *PROGRAMS[runtime][2], file]
    return run(*command, environment={"NO_COLOR": "1", **environment})


def node(script: str, *arguments: str | Path) -> str:
    """Return what a bundled script prints."""
    program = ["node", PACKAGE / f"build/{script}.js", *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


def make_profile(relayer: RunningRelayer, folder: Path) -> Path:
    """Return the profile of a new sealed account."""
    path = folder / "profile.json"
    account = relayer.command("account", "create", "--custody", "sealed")
    members = ("account_id", "private_key", "relayer_key")
    write_private(path, {"url": relayer.url} | {name: account[name] for name in members})
    return path


@pytest.fixture(scope="module")
def relayer(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningRelayer]:
    folder = tmp_path_factory.mktemp("typescript")
    settings = {"RELAYER_RATE_LIMIT": "off", "RELAYER_WEBHOOK_REACH": "private"}
    with running_relayer(folder / "data", model_dir, **settings) as running:
        yield running


def test_the_types_of_the_api_are_up_to_date() -> None:
    assert generate_typescript.main(["--check"]) == 0


def test_every_type_holds() -> None:
    npm("check")


def test_the_package_is_built_and_small() -> None:
    npm("test:size")


def test_every_vector_in_node() -> None:
    npm("test:vectors")


def test_every_vector_in_chromium() -> None:
    npm("test:chromium")


def test_a_real_relayer(relayer: RunningRelayer) -> None:
    npm("test:live", MEMRELAY_TEST_URL=relayer.url)


@pytest.mark.parametrize("runtime", PROGRAMS)
def test_every_vector_in_another_runtime(runtime: str) -> None:
    told = run_test(runtime, "vectors")
    assert re.search(r"\b0 fail", told), told[-2000:]
    passed = re.search(r"([0-9]+) pass", told)
    vectors = list((PACKAGE / "../../tests/vectors").glob("*.json"))
    assert passed
    assert int(passed[1]) == len(vectors) + 1  # and one that all operations have some


@pytest.mark.parametrize("runtime", PROGRAMS)
def test_a_real_relayer_from_another_runtime(relayer: RunningRelayer, runtime: str) -> None:
    run_test(runtime, "live", MEMRELAY_TEST_URL=relayer.url)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the package is installed as it is published, and a program that uses it."""
    folder = tmp_path_factory.mktemp("installed")
    npm("build")
    run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder)
    [packed] = folder.glob("*.tgz")
    run("tar", "-xzf", packed, folder=folder)
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules/memrelay")
    shutil.copytree(PACKAGE / "node_modules/@noble", folder / "node_modules/@noble")
    shutil.copy(PACKAGE / "test/installed.mjs", folder)
    (folder / "package.json").write_text('{"dependencies": {"memrelay": "*"}}')
    return folder


@pytest.mark.parametrize("runtime", ["node", *PROGRAMS])
def test_one_life_with_the_installed_package(
    relayer: RunningRelayer, installed: Path, runtime: str
) -> None:
    """Its files and entries are all there; Deno grants it the network and nothing else."""
    command: list[str | Path] = ["node"]
    if runtime in PROGRAMS:
        command = [program(runtime), *PROGRAMS[runtime][1]]
    assert run(*command, "installed.mjs", relayer.url, folder=installed).endswith("lived\n")


def test_the_readme_names_the_runtimes_that_are_tested() -> None:
    """Each with its pinned version."""
    readme = (PACKAGE / "README.md").read_text()
    pins = json.loads((Path(__file__).parent / "package.json").read_text())["dependencies"]
    assert f"Deno (tested: {pins['deno']}), Bun ({pins['bun']})" in readme


def test_a_memory_for_models_of_the_ai_sdk(relayer: RunningRelayer) -> None:
    npm("test:ai", MEMRELAY_TEST_URL=relayer.url)


def test_a_page_of_a_listed_origin_uses_the_client(
    relayer: RunningRelayer, tmp_path: Path, model_dir: Path
) -> None:
    """In Chromium: preflights, streams and errors of one relayer; nothing of another one."""
    port = lasting_port()
    origins = f"https://app.example,http://127.0.0.1:{port}"
    with running_relayer(tmp_path / "open", model_dir, RELAYER_CORS_ORIGINS=origins) as listing:
        urls = {"MEMRELAY_TEST_URL": listing.url, "MEMRELAY_TEST_OTHER_URL": relayer.url}
        npm("test:elsewhere", MEMRELAY_TEST_PAGE_PORT=str(port), **urls)


def test_an_account_moves_between_relayers(
    relayer: RunningRelayer, tmp_path: Path, model_dir: Path
) -> None:
    with running_relayer(tmp_path / "other", model_dir, RELAYER_RATE_LIMIT="off") as other:
        urls = {"MEMRELAY_TEST_URL": relayer.url, "MEMRELAY_TEST_OTHER_URL": other.url}
        npm("test:archive", **urls)


def test_both_clients_read_each_others_archives(relayer: RunningRelayer, tmp_path: Path) -> None:
    path, written, theirs = make_profile(relayer, tmp_path), tmp_path / "a", tmp_path / "b"
    with SyncMemoryClient.from_profile(path) as client:
        kept = client.remember("Anna prefers tea.")
        client.edit(kept.id, text="Anna prefers coffee.")
        client.forget(client.remember("A slip.").id)
        done = export_archive(client, theirs, lambda _: None)
        identity, account = client.settings.identity, client.session.account
    node("archived", "write", path, written)
    counts = open_archive(written, identity, account).counts
    assert counts == json.loads(node("archived", "read", path, theirs))
    assert {**counts, "lost": 0} == done.counts
    assert counts["memory"] == 2


def test_both_clients_verify_an_account_alike(relayer: RunningRelayer, tmp_path: Path) -> None:
    path = make_profile(relayer, tmp_path)
    with SyncMemoryClient.from_profile(path) as client:
        kept = client.remember("Anna prefers tea.")
        client.edit(kept.id, text="Anna prefers coffee.")
        client.pin(kept.id)
        client.forget(client.remember("A slip.").id)
        client.rotate(reseal="all")
        found = client.verify(open_all=True).to_json()
    assert found["ok"]
    assert found["opened"] == 2
    assert json.loads(node("verified", path)) == found


def test_both_clients_share_a_profile_and_what_they_verified(
    relayer: RunningRelayer, tmp_path: Path
) -> None:
    """Each reads what the other wrote, and neither is shown less than the other was."""
    path = make_profile(relayer, tmp_path)
    with SyncMemoryClient.from_profile(path) as client:
        client.remember("Anna prefers tea.")
    assert json.loads(node("shared", path)) == ["Anna prefers tea."]
    with SyncMemoryClient.from_profile(path) as client:
        assert client.recall("coffee").results[0].text == "Bert prefers coffee."
        seen = client.session.trust_store.value
        assert seen.receipt_seq == client.receipts()[-1].seq
