"""A sync goes on after cut connections, and after the client or a relayer was killed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from memrelay import SyncMemoryClient
from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.sealed.keys import Identity
from relayer.postgres.embedded import EmbeddedPostgres
from tests.client.archive_scene import Scene, found, other_relayer
from tests.client.breakpoints import COMMAND_S_MAX, breakpoint_at
from tests.client.sync_scene import Pair, contents, forget_agreement
from tests.conftest import TestDatabase, database_copy
from tests.loopback_proxy import loopback_server, relay
from tests.processes import RunningRelayer, lasting_port, running_relayer

__all__ = ["found", "other_relayer"]  # fixtures

NOTES = 240
_IMPORT = b"POST /v1/import"


@pytest.fixture
def pair(found: Callable[[str], Scene], capsys: pytest.CaptureFixture[str]) -> Pair:
    """An account at both, in step, with edits, erasures, pins and notes that are not yet."""
    pair = Pair(found("sealed"), capsys)
    differ(pair)
    return pair


def differ(pair: Pair) -> None:
    here, there = pair.both()
    with here, there:
        ids = [m.id for m in here.remember_many([f"Early note {n}." for n in range(8)])]
        pair.run("--found")
        here.edit(ids[0], text="Edited here.")
        there.edit(ids[0], text="Edited there.")
        there.edit(ids[1], text="Only edited there.")
        here.forget(ids[2])
        there.forget(ids[3])
        here.pin(ids[4])
        there.reject(ids[5])
        here.remember_many([f"Note {n} from here." for n in range(NOTES)])
        there.remember_many([f"Note {n} from there." for n in range(NOTES // 2)])


def check(pair: Pair) -> None:
    """Both hold the same, all of it, and each thing once."""
    here, there = pair.both()
    with here, there:
        same = contents(here)
        assert same == contents(there)
        texts = [memory[3] for memory in same]
        notes = {f"Note {n} from here." for n in range(NOTES)}
        notes |= {f"Note {n} from there." for n in range(NOTES // 2)}
        early = {f"Early note {n}." for n in (4, 5, 6, 7)}
        edits = {"Edited here.", "Edited there.", "Only edited there."}
        assert len(texts) == len(set(texts))
        assert set(texts) == notes | early | edits
        assert len(here.review().memories) == 1
    told = pair.run()
    assert all(one[name] == 0 for one in told["relayers"] for name in ("new", "revisions"))


@dataclass
class Meddler:
    """Stands before a relayer, and does something when the nth import comes."""

    upstream: str
    url: str = ""
    imports: int = 0
    deeds: dict[int, Callable[[], None]] = field(default_factory=dict)

    async def lead(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self.upstream)
        with suppress(OSError):
            far = await asyncio.open_connection(parts.hostname, parts.port)
            await relay(far, (near, answer), self._watch)

    def _watch(self, data: bytes) -> bytes:
        for _ in range(data.count(_IMPORT)):
            self.imports += 1
            self.deeds.pop(self.imports, lambda: None)()
        return data


@contextmanager
def meddler(upstream: str) -> Iterator[Meddler]:
    one = Meddler(upstream)
    with loopback_server(one.lead) as port:
        one.url = f"http://127.0.0.1:{port}"
        yield one


def cut() -> None:
    """End the connection before the request has gone on."""
    raise ConnectionResetError


def profile_at(pair: Pair, url: str) -> str:
    """The profile of the other relayer, reached elsewhere."""
    path = Path(pair.there)
    passage = path.with_name("passage.json")
    passage.write_text(path.read_text().replace(pair.scene.there.url, url))
    passage.chmod(0o600)
    return str(passage)


def test_cut_connections_cost_time_only(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrelay.rows.PAGE_ITEMS_MAX", 30)
    with meddler(pair.scene.there.url) as passage:
        passage.deeds = dict.fromkeys((1, 3, 4, 6, 9), cut)
        argv = ["sync", profile_at(pair, passage.url), "--profile", pair.here]
        assert main(argv, {}) == EXIT_OK
        assert passage.deeds == {}
    check(pair)


@pytest.mark.parametrize(("side", "after"), [("there", False), ("there", True), ("here", True)])
def test_a_client_that_is_killed_goes_on(pair: Pair, side: str, after: bool) -> None:
    relayer = getattr(pair.scene, side)
    with breakpoint_at(relayer.url, "/v1/import", after=after) as point:
        argv = ["sync", pair.there, "--profile", pair.here]
        if side == "there":
            argv[1] = profile_at(pair, point.url)
        else:
            text = Path(pair.here).read_text().replace(relayer.url, point.url)
            Path(pair.here).write_text(text)
        with subprocess.Popen([sys.executable, "-m", "memrelay", *argv]) as process:
            assert point.reached.wait(COMMAND_S_MAX)
            process.kill()
            process.wait()
    pair.here = pair.scene.profile(name="here")
    if after:
        forget_agreement(pair)
    pair.run()
    check(pair)


@pytest_asyncio.fixture
async def databases(
    postgres: EmbeddedPostgres, template: str
) -> AsyncIterator[tuple[TestDatabase, TestDatabase]]:
    async with database_copy(postgres, template) as one, database_copy(postgres, template) as two:
        yield one, two


@pytest.mark.parametrize("victim", ["here", "there"])
def test_a_relayer_that_is_killed_goes_on(
    databases: tuple[TestDatabase, TestDatabase],
    model_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    victim: str,
) -> None:
    monkeypatch.setattr("memrelay.rows.PAGE_ITEMS_MAX", 30)
    with ExitStack() as stack:

        def serve(name: str, port: int) -> RunningRelayer:
            started = running_relayer(
                tmp_path / name,
                model_dir,
                "--port",
                str(port),
                database_url=databases[name == "there"].url,
                RELAYER_EMBEDDER="none",
            )
            return stack.enter_context(started)

        ports = {"here": lasting_port(), "there": lasting_port()}
        running = {name: serve(name, port) for name, port in ports.items()}
        pair = found_pair(running, tmp_path, capsys)
        differ(pair)
        with meddler(running["there"].url) as passage:

            def kill() -> None:
                running[victim].kill()

            passage.deeds = {3: kill}
            argv = ["sync", profile_at(pair, passage.url), "--profile", pair.here]
            assert main(argv, {}) == EXIT_FAILED
            running[victim] = serve(victim, ports[victim])
            assert main(argv, {}) == EXIT_OK
        check(pair)


def found_pair(
    running: dict[str, RunningRelayer], folder: Path, capsys: pytest.CaptureFixture[str]
) -> Pair:
    founder = Identity.generate()
    account = SyncMemoryClient.create_account(running["here"].url, identity=founder)
    scene = Scene(running["here"], running["there"], founder, account.account_id, folder)
    return Pair(scene, capsys)
