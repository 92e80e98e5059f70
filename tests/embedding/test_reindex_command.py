"""`relayer reindex`: beside a running relayer, without one, and after a kill."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relayer.clock import utc_now
from relayer.database.pool import Database
from relayer.errors import NotFound, Unavailable
from relayer.identity import make_identity
from relayer.installation import NotInstalled, at
from relayer.run_file import alone, write_run_file
from relayer.sealed.keys import AccountId, account_text
from relayer.settings import Settings
from relayer.upkeep import doctor, reindex
from relayer.upkeep.doctor import OK, PROBLEM
from tests.conftest import BenchMaker, TestDatabase
from tests.embeddings_server import KEY, EmbeddingsServer
from tests.processes import RunningRelayer, client, running_relayer
from tests.reindex_scene import (
    BY_MODEL,
    MODELS,
    NEW,
    OLD,
    TEXTS,
    changed,
    embedder,
    old,
    server,
    written,
)
from tests.services import Bench

__all__ = ["old", "server"]  # fixtures


class Installation:
    """A data folder, a database and an embedding endpoint, and the processes on them."""

    def __init__(
        self, folder: Path, model_dir: Path, database: TestDatabase, server: EmbeddingsServer
    ) -> None:
        self._folder = folder
        self._model_dir = model_dir
        self._database = database
        self._server = server

    def environment(self, model: str) -> dict[str, str]:
        """The settings of a relayer with this model."""
        return {
            "RELAYER_EMBEDDING_MODEL": model,
            "RELAYER_EMBEDDING_DIM": str(MODELS[model]),
            "RELAYER_EMBEDDING_BASE_URLS": self._server.url,
            "OPENAI_API_KEY": KEY,
        }

    def settings(self, model: str) -> Settings:
        """The same for a call in this process."""
        return Settings(
            data_dir=self._folder,
            database_url=self._database.url,
            embedding_model=model,
            embedding_dim=MODELS[model],
            embedding_base_urls=self._server.url,
            openai_api_key=KEY,
        )

    def relayer(self, model: str) -> AbstractContextManager[RunningRelayer]:
        """A relayer that serves with this model."""
        return running_relayer(
            self._folder,
            self._model_dir,
            database_url=self._database.url,
            **self.environment(model),
        )

    async def command(self, model: str, *arguments: str) -> "Done":
        """A `relayer` command of its own with this model."""
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("RELAYER_", "OPENAI_"))
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", "relayer", *arguments),
            *("--data-dir", str(self._folder), "--database-url", self._database.url),
            env=inherited | self.environment(model),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def installation(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase, server: EmbeddingsServer
) -> Installation:
    return Installation(tmp_path / "data", model_dir, fresh_database, server)


async def remembered(relayer: RunningRelayer, custody: str, texts: Sequence[str]) -> dict[str, Any]:
    """A new account with these texts; its vectors follow."""
    account = await asyncio.to_thread(
        relayer.command, "account", "create", "--label", "test", "--custody", custody
    )
    await asyncio.to_thread(_remember, account, texts)
    return account


def _remember(account: dict[str, Any], texts: Sequence[str]) -> None:
    with client(account, account["server_url"]) as memory:
        for text in texts:
            memory.remember(text)


async def until(database: Database, statement: str, wanted: Any, *arguments: Any) -> None:
    async with asyncio.timeout(60):
        while (await database.fetch(statement, *arguments))[0][0] != wanted:
            await asyncio.sleep(0.05)


async def models_in(database: Database) -> list[str]:
    return [r["model"] for r in await database.fetch("SELECT DISTINCT model FROM vectors")]


def standing(report: dict[str, Any], account_id: str) -> dict[str, Any]:
    [found] = [a for a in report["accounts"] if a["account_id"] == account_id]
    return {k: v for k, v in found.items() if v and k not in ("account_id", "custody")}


class TestProcesses:
    async def test_a_killed_relayer_goes_on_after_its_restart(
        self,
        installation: Installation,
        server: EmbeddingsServer,
        database: Database,
        make_bench: BenchMaker,
    ) -> None:
        """SIGKILL while texts are at the new model, its answer on its way."""
        identity = make_identity(installation.settings(OLD).data_dir / "relayer.key")
        old = make_bench(embedder=embedder(server, OLD), identity=identity, clock=utc_now)
        caller, _ = await written(old)
        await old.sql("UPDATE memories SET created_at = created_at - interval '1 h'")
        server.hold.clear()
        server.asked.clear()
        async with AsyncExitStack() as stack:
            relayer = await _entered(stack, installation.relayer(NEW))
            await server.asked.wait()
            relayer.kill()
        server.hold.set()
        assert (await database.fetch(BY_MODEL, f"{OLD}/6"))[0][0] == 10
        async with AsyncExitStack() as stack:
            relayer = await _entered(stack, installation.relayer(NEW))
            done = await installation.command(NEW, "reindex", "--json")
            assert (done.code, done.data["ok"]) == (0, True), done.err
            assert standing(done.data, account_text(caller.access.account)) == {
                "memories": 10,
                "up_to_date": 10,
            }
            assert (await asyncio.to_thread(relayer.command, "check"))["ok"]
        assert await models_in(database) == [f"{NEW}/6"]

    async def test_the_command_beside_a_relayer_and_without_one(
        self, installation: Installation, server: EmbeddingsServer, database: Database
    ) -> None:
        new = installation.settings(NEW)
        async with AsyncExitStack() as stack:
            relayer = await _entered(stack, installation.relayer(OLD))
            managed = await remembered(relayer, "managed", TEXTS)
            sealed = await remembered(relayer, "sealed", TEXTS[:3])
            await until(database, BY_MODEL, 13, f"{OLD}/6")
            # The running relayer's model counts, whatever this call's settings say.
            beside = await reindex.status(new, account=None)
            assert (beside.ok, beside.versions.embedding) == (True, embedder(server, OLD).version)
            asked = len(server.requests)
            forced = await installation.command(
                NEW, "reindex", "--force", "--json", "--account", managed["account_id"]
            )
            assert (forced.code, len(forced.data["accounts"])) == (0, 1), forced.err
            assert sum(map(len, server.requests[asked:])) == 10
        report = (await reindex.status(new, account=None)).as_json()
        assert not report["ok"]
        assert standing(report, managed["account_id"]) == {"memories": 10, "waiting": 10}
        assert standing(report, sealed["account_id"]) == {"memories": 3, "waiting_for_keys": 3}
        found = {f["check"]: f for f in await doctor.examine(new)}["index"]
        assert (found["state"], found["command"]) == (PROBLEM, f"relayer reindex{at(new)}")
        assert await models_in(database) == [f"{OLD}/6"]  # both only looked
        alone = await installation.command(NEW, "reindex")
        assert alone.code == 1  # the sealed account is left
        assert "10 of 13 memories up to date, 3 waiting for keys" in alone.out
        assert {f["check"]: f for f in await doctor.examine(new)}["index"]["state"] == OK

    async def test_a_broken_account_is_told_and_the_others_go_on(
        self, installation: Installation, server: EmbeddingsServer, make_bench: BenchMaker
    ) -> None:
        identity = make_identity(installation.settings(OLD).data_dir / "relayer.key")
        old = make_bench(embedder=embedder(server, OLD), identity=identity, clock=utc_now)
        caller, _ = await written(old)
        broken, _ = await written(old)
        await old.sql(
            "UPDATE accounts SET grant_serial = 1, created_at = created_at - interval '1 h'"
            " WHERE account_id = $1",
            broken.access.account,
        )
        done = await installation.command(NEW, "reindex", "--json")
        assert (done.code, done.data["ok"]) == (1, False), done.err
        good, bad = (account_text(c.access.account) for c in (caller, broken))
        assert standing(done.data, good) == {"memories": 10, "up_to_date": 10}
        assert list(standing(done.data, bad)) == ["problem"]

    async def test_following_ends_when_nothing_advances(
        self, old: Bench, server: EmbeddingsServer
    ) -> None:
        """Another account's job, which nobody works on, does not keep it either."""
        caller, _ = await written(old)
        other, _ = await written(old)
        new = changed(old, server)
        server.gone.add(NEW)
        await new.services.sweeper.sweep()
        await new.sql(
            "UPDATE pgqueuer SET execute_after = now() + interval '1 day' WHERE dedupe_key = $1",
            f"reindex:{other.access.account.hex()}",
        )
        account, told = caller.access.account, list[Any]()
        async with new.working(), asyncio.timeout(40):
            report = await reindex._ask(
                new.storage, new.services.indexer.versions, account, [account], told.append
            )
        assert told
        assert (report.ok, report.total("waiting")) == (False, 10)
        assert "tries again" in report.as_text()

    async def test_the_command_tells_what_it_needs(
        self, installation: Installation, server: EmbeddingsServer
    ) -> None:
        settings = installation.settings(OLD)
        with pytest.raises(NotInstalled):
            await reindex.status(settings, account=None)
        make_identity(settings.data_dir / "relayer.key")
        with pytest.raises(NotFound):
            await reindex.status(settings, account=AccountId(bytes(32)))
        nonsense = await installation.command(OLD, "reindex", "--account", "anna")
        assert nonsense.code == 2
        assert "(see `relayer reindex --help`)" in nonsense.err

    async def test_a_relayer_that_does_not_answer_is_told(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        settings = installation.settings(OLD)
        url = "http://127.0.0.1:9"
        with alone(tmp_path), write_run_file(tmp_path, url), pytest.raises(Unavailable):
            await reindex.versions_of(replace(settings, data_dir=tmp_path))


async def _entered(
    stack: AsyncExitStack, relayer: AbstractContextManager[RunningRelayer]
) -> RunningRelayer:
    """A relayer that runs until the stack ends, started without holding up this loop's servers."""
    running = await asyncio.to_thread(relayer.__enter__)
    stack.push_async_callback(asyncio.to_thread, relayer.__exit__, None, None, None)
    return running
