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
from memrelay.secure_files import write_private
from tests import generate_typescript
from tests.processes import RunningRelayer, running_relayer

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


@pytest.fixture(scope="module")
def relayer(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningRelayer]:
    folder = tmp_path_factory.mktemp("typescript")
    with running_relayer(folder / "data", model_dir, RELAYER_RATE_LIMIT="off") as running:
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


def test_both_clients_share_a_profile_and_what_they_verified(
    relayer: RunningRelayer, tmp_path: Path
) -> None:
    """Each reads what the other wrote, and neither is shown less than the other was."""
    path = tmp_path / "profile.json"
    account = relayer.command("account", "create", "--custody", "sealed")
    members = ("account_id", "private_key", "relayer_key")
    write_private(path, {"url": relayer.url} | {name: account[name] for name in members})
    with SyncMemoryClient.from_profile(path) as client:
        client.remember("Anna prefers tea.")
    shared = [PACKAGE / "build/shared.js", path]
    done = subprocess.run(["node", *shared], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["Anna prefers tea."]
    with SyncMemoryClient.from_profile(path) as client:
        assert client.recall("coffee").results[0].text == "Bert prefers coffee."
        seen = client.session.trust_store.value
        assert seen.receipt_seq == client.receipts()[-1].seq
