"""An account at one of two real relayers, to be moved to the other in an archive."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from memrelay import SyncMemoryClient
from memrelay.archive_writer import export_archive
from memrelay.cli import main
from memrelay.sealed.keys import Identity
from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import database_copy
from tests.processes import RunningRelayer, running_relayer

TEXTS = ["Anna prefers green tea.", "Ben sells cups in Bremen.", "The kettle is broken."]


@pytest_asyncio.fixture(scope="module")
async def other_relayer(
    postgres: EmbeddedPostgres,
    template: str,
    model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[RunningRelayer]:
    """A second relayer with a key and a database of its own."""
    folder = tmp_path_factory.mktemp("other") / "data"
    async with database_copy(postgres, template) as copy:
        with running_relayer(folder, model_dir, database_url=copy.url) as process:
            yield process


@dataclass
class Scene:
    """An account at one relayer, and how its clients reach the other."""

    here: RunningRelayer
    there: RunningRelayer
    founder: Identity
    account_id: str
    folder: Path

    def client(self, identity: Identity, *, at: RunningRelayer | None = None) -> SyncMemoryClient:
        return SyncMemoryClient(
            url=(at or self.here).url,
            account_id=self.account_id,
            private_key=identity.seed_hex(),
            namespace="team",
        )

    def profile(self, at: RunningRelayer | None = None, name: str = "profile") -> str:
        path = self.folder / f"{name}.json"
        path.write_text(
            json.dumps(
                {
                    "url": (at or self.here).url,
                    "account_id": self.account_id,
                    "private_key": self.founder.seed_hex(),
                    "namespace": "team",
                }
            )
        )
        path.chmod(0o600)
        return str(path)

    def run(self, *argv: str) -> int:
        return main([*argv, "--profile", self.profile()], {})

    @property
    def archive(self) -> Path:
        return self.folder / "anna.archive"


@pytest.fixture
def found(
    shared_relayer: RunningRelayer, other_relayer: RunningRelayer, tmp_path: Path
) -> Callable[[str], Scene]:
    def make(custody: str = "sealed") -> Scene:
        founder = Identity.generate()
        account = SyncMemoryClient.create_account(
            shared_relayer.url, custody=custody, identity=founder, label="anna"
        )
        return Scene(shared_relayer, other_relayer, founder, account.account_id, tmp_path)

    return make


def quiet(_: int) -> None:
    """No progress."""


def exported(scene: Scene) -> Mapping[str, int]:
    with scene.client(scene.founder) as client:
        done = export_archive(client, scene.archive, quiet)
    assert done.missing == []
    return done.counts
