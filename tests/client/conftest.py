"""Fixtures of the client's tests: the specification's example, and a relayer that all share."""

import io
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from memrelay.sealed.keys import Identity, NamespaceKey, Root, account_id_of
from relayer.postgres.embedded import EmbeddedPostgres
from tests.client.shell_scene import Machine
from tests.conftest import database_copy
from tests.processes import RunningRelayer, running_relayer


@dataclass(frozen=True)
class Example:
    founder: Identity
    agent: Identity
    relayer: Identity
    root: Root

    @property
    def account(self) -> bytes:
        return account_id_of(self.founder.public_key)

    @property
    def team(self) -> NamespaceKey:
        return self.root.namespace_key(self.account, "team")


@pytest.fixture
def example() -> Example:
    return Example(
        founder=Identity(bytes(range(32))),
        agent=Identity(bytes(range(64, 96))),
        relayer=Identity(bytes(range(96, 128))),
        root=Root(bytes(range(32, 64)), 1),
    )


@pytest_asyncio.fixture(scope="session")
async def shared_relayer(
    postgres: EmbeddedPostgres,
    template: str,
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[RunningRelayer]:
    """A real `relayer serve` process for tests that each found an account of their own."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    async with database_copy(postgres, template) as copy:
        with running_relayer(folder, model_dir, database_url=copy.url) as process:
            yield process


@pytest.fixture
def custody() -> str:
    """How accounts of `run` keep their keys; a module that tries both says so."""
    return "sealed"


@pytest.fixture
def run(
    custody: str,
    shared_relayer: RunningRelayer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Machine:
    """The shell of a user who has just founded an account; nothing stands on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    machine = Machine(tmp_path / "profile.json", capsys)
    machine("init", shared_relayer.url, "--custody", custody)
    return machine


@pytest.fixture
def eight_hours_west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in a time zone that is eight hours behind UTC."""
    yield from _machine_in("PST8", monkeypatch)


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose time zone is UTC."""
    yield from _machine_in("UTC", monkeypatch)


def _machine_in(zone: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()
