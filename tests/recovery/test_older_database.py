"""A real relayer that is started on the database of yesterday, beside the blobs of today."""

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memrelay import SyncMemoryClient
from memrelay.errors import NotAuthenticated, NotFound
from relayer.commands.failures import EXIT_NOT_FOUND
from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import TestDatabase
from tests.processes import RunningRelayer, client, create_account, running_relayer


async def copied(postgres: EmbeddedPostgres, source: str, target: str) -> None:
    """Replace a database by a copy of another; nobody may be connected to either."""
    admin = await asyncpg.connect(**{**postgres.admin_args, "database": "postgres"})
    owner = postgres.connect_args["user"]
    await admin.execute(f'DROP DATABASE IF EXISTS "{target}" WITH (FORCE)')
    await admin.execute(f'CREATE DATABASE "{target}" TEMPLATE "{source}" OWNER "{owner}"')
    await admin.close()


def key_client(relayer: RunningRelayer, account: dict[str, Any], seed: str) -> SyncMemoryClient:
    return SyncMemoryClient(url=relayer.url, account_id=account["account_id"], private_key=seed)


async def test_what_was_decided_since_holds_for_the_first_request(
    postgres: EmbeddedPostgres, fresh_database: TestDatabase, model_dir: Path, tmp_path: Path
) -> None:
    name = fresh_database.connect_args["database"]
    saved = f"{name}_saved"
    store = {"RELAYER_BLOB_STORE": f"file:{tmp_path / 'blobs'}"}

    def started() -> AbstractContextManager[RunningRelayer]:
        return running_relayer(
            tmp_path / "data", model_dir, database_url=fresh_database.url, **store
        )

    with started() as relayer:
        account = create_account(relayer, "managed")
        of_account = ("--account", account["account_id"])
        gone = relayer.command("key", "add", *of_account, "--namespaces", "default")
        with client(account, relayer.url) as memory:
            doomed = memory.remember("Anna prefers tea.").id
    await copied(postgres, name, saved)
    with started() as relayer:
        with client(account, relayer.url) as memory:
            later = memory.remember("Ben sells cups.").id
            memory.forget(doomed)
        relayer.command("key", "revoke", *of_account, "--key", gone["public_key"])
    await copied(postgres, saved, name)
    with started() as relayer:
        with (
            key_client(relayer, account, gone["private_key"]) as revoked,
            pytest.raises(NotAuthenticated),
        ):
            revoked.recall("tea")
        with client(account, relayer.url) as memory:
            with pytest.raises(NotFound):
                memory.get(doomed)
            memory.restore()
            assert memory.get(later).text == "Ben sells cups."


def test_an_operator_erases_an_account(relayer: RunningRelayer) -> None:
    """Beside a running relayer, which knows its keys no more; not without `--yes`."""
    account, kept = (create_account(relayer, "managed") for _ in range(2))
    with client(account, relayer.url) as memory:
        memory.remember("Anna prefers tea.")
        refused = subprocess.run(
            [sys.executable, "-m", "relayer", "account", "erase", account["account_id"],
             "--data-dir", str(relayer.data_dir)],
            env=relayer.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--yes" in refused.stderr
        assert len(memory.recall("tea", min_relevance=0.0).results) == 1
        erased = relayer.command("account", "erase", account["account_id"], "--yes")
        assert (erased["closed"], erased["erased"]) == (True, 1)
        with pytest.raises(NotAuthenticated):
            memory.recall("tea")
    listed = relayer.command("account", "list")["accounts"]
    assert [a["account_id"] for a in listed] == [kept["account_id"]]
    with pytest.raises(subprocess.CalledProcessError) as again:
        relayer.command("account", "erase", account["account_id"], "--yes")
    assert again.value.returncode == EXIT_NOT_FOUND
