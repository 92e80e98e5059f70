"""The TypeScript client as its users have it: types, vectors in Node and Chromium, a live relayer.

`make test-typescript` runs this file; `make test`, which needs no Node, does not. The tests
themselves stand in `client/typescript/test/`.
"""

import json
import os
import subprocess
from collections.abc import Iterator
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


def npm(script: str, **environment: str) -> None:
    """Run a script of the package; its words are shown where it fails."""
    done = subprocess.run(
        ["npm", "run", "--silent", script],
        cwd=PACKAGE, env=os.environ | environment, timeout=RUN_S_MAX, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]


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
