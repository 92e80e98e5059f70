"""MemWal's TypeScript world against a real relayer and a managed account: a run of `calls.mjs`.

`make test-memwal-ts` runs this file; `make test`, which needs no Node, does not. Not here: MemWal's
Python SDK, whose every call is made (`test_memwal.py`).
"""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.marks import Search
from tests.processes import RunningRelayer, running_relayer

CALLS = Path(__file__).with_name("calls.mjs")
RUN_S_MAX = 300


@dataclass(frozen=True)
class Run:
    """What the calls brought, the relayer that answered them, and the key that signed them."""

    came: dict[str, Any]
    relayer: RunningRelayer
    private_key: str
    namespace: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Run]:
    """One pass over all calls; `MEMWAL_TS` is the folder that has the packages."""
    folder = Path(os.environ["MEMWAL_TS"])
    program = shutil.copy(CALLS, folder)  # Node looks for packages beside the program
    namespace = f"ts-{uuid.uuid4()}"
    with running_relayer(tmp_path_factory.mktemp("memwal-ts") / "data", model_dir) as relayer:
        made = relayer.command("account", "create", "--custody", "managed")
        words = (relayer.url, made["private_key"], made["account_id"], namespace)
        done = subprocess.run(
            ["node", program, *words],
            cwd=folder, capture_output=True, text=True, timeout=RUN_S_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        yield Run(json.loads(done.stdout), relayer, made["private_key"], namespace)


def test_the_published_release_is_told_that_it_is_too_old(run: Run) -> None:
    """It sends no nonce, so that whoever hears a request could repeat it."""
    published = run.came["published"]
    assert published["health"] == "ok"
    for answer in (published["remember"], published["recall"]):
        assert "(426)" in answer
        assert "client.too_old" in answer


def test_the_private_key_that_it_sends_along_is_nowhere(run: Run) -> None:
    """The published release adds a header with the private key to every request."""
    assert "/api/remember" in run.relayer.log.read_text()
    search = Search({"private key": bytes.fromhex(run.private_key), "in hex": run.private_key})
    assert search.leaks(run.relayer.data_dir) == []


@pytest.mark.parametrize("transport", ["jsonRpc", "grpc"])
def test_a_session_of_mystens_own_libraries_is_taken(run: Run, transport: str) -> None:
    """The package is looked up at the relayer's stand-in, and the session made for it counts."""
    assert run.came["sessions"][transport] == {"job": "done", "found": True}


def test_a_session_that_was_changed_is_refused(run: Run) -> None:
    forged = run.came["forged"]
    assert (forged["status"], forged["code"]) == (401, "auth.rejected")


def test_the_calls_of_later_releases(run: Run) -> None:
    came = run.came
    assert came["bulk"] == ["done", "done", "not_found"]
    assert came["analyzed"] == ["I decided to move to Lisbon next year."]
    assert len(came["recent"]) == 2
    assert came["manual"] is True
    restored, skipped, failed = came["restored"]
    assert (restored, failed) == (0, 0)
    assert skipped == 5  # two sessions' texts, two of a bulk, a fact; not what the client sealed
    (listed,) = came["namespaces"]
    assert (listed["name"], listed["memory_count"]) == (run.namespace, 6)
