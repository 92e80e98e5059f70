"""What the suite runs against: PostgreSQL and relayer processes of its own, in a temporary folder.

Not here: memories in it (`filling.py`), requests to it (`load.py`).

- Relayers are started as a user starts them, with request limits off and nothing else changed. The
  database is the embedded one with its own settings, shared by them and by this process.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlencode

import asyncpg
from pgvector.asyncpg import register_vector

from memrelay import MemoryClient
from relayer.clock import utc_now
from relayer.database.pool import Connection
from relayer.embedding import model
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.published import ENGLISH
from relayer.installation import open_storage
from relayer.sealed.grants import open_grant
from relayer.sealed.keys import AccountId, Identity, Namespace, NamespaceKey, Root, account_text
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep import provision
from relayer.words.tokens import INDEX_VERSION

MODEL_FOLDER: Final = model.folder_of(ENGLISH, os.environ.get("RELAYER_MODEL_DIR", ""))
START_S_MAX: Final = 120.0
# A relayer that answers as the first recall of a namespace, and beyond the bound, is answered.
FROM_DATABASE: Final = ("--index-memory-bytes", "0")


# By an index: whoever asks often would count among what is measured otherwise.
_IS_UNEMBEDDED: Final = """
SELECT EXISTS (SELECT FROM memories
               WHERE account_id = $1 AND format = 'sealed' AND index_version = $2
                 AND embedding_version = '')
"""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured.

    Attributes:
        rounds: of each measurement.
        quick: everything tiny, to see that it works; such figures say nothing.
        largest: memories of the largest namespace.
        rows: memories of the large database; 0 leaves it out.
        backlog: MiB of one account's text that waits for vectors.
    """

    rounds: int
    quick: bool
    largest: int
    rows: int
    backlog: int


@dataclass(frozen=True)
class Account:
    """An account of which this process has the keys."""

    id: AccountId
    founder: Identity
    root: Root

    def key(self, namespace: str) -> NamespaceKey:
        """The key of a namespace."""
        key = self.root.namespace_key(self.id, Namespace(namespace))
        assert isinstance(key, NamespaceKey)
        return key


@dataclass(frozen=True)
class Process:
    """A process of ours that says where it listens; `ready_s` is how long that took."""

    url: str
    pid: int
    ready_s: float

    @property
    def resident_mb(self) -> float:
        """Its resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def proportional_mb(self) -> float:
        """Memory of it and of its workers now; each page counts once, however many share it."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        found = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (self.pid, *children)]
        sizes = re.findall(r"^Pss:\s+(\d+) kB$", "\n".join(found), re.MULTILINE)
        return sum(map(int, sizes)) / 2**10


@dataclass(frozen=True)
class Site:
    """A folder with a database, and the means to fill it and to run relayers on it."""

    folder: Path
    storage: Storage
    embedder: BuiltinEmbedder

    async def new_account(self, *, custody: Literal["managed", "sealed"] = "sealed") -> Account:
        """A fresh account."""
        made = await provision.create_account(
            self.storage, label="benchmark", custody=custody, clock=utc_now
        )
        chain = await self.storage.accounts.chain(made.account)
        [grant] = chain.grants[made.identity.public_key]
        [root] = open_grant(grant, made.identity)
        assert isinstance(root, Root)
        return Account(made.account, made.identity, root)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection as relayers have them, but without their deadline for a statement."""
        connection = await asyncpg.connect(**self.storage.connect_args)
        try:
            await register_vector(connection)
            yield connection
        finally:
            await connection.close()

    async def is_embedded(self, account: Account) -> bool:
        """Whether every memory of an account has its vector."""
        row = await self.storage.database.fetchrow(_IS_UNEMBEDDED, account.id, INDEX_VERSION)
        assert row is not None
        return not row[0]

    def client(self, process: Process, account: Account) -> MemoryClient:
        """The real client of an account's founder."""
        return MemoryClient(
            url=process.url,
            account_id=account_text(account.id),
            private_key=account.founder.seed.hex(),
            relayer_key=self.storage.identity.public_key.hex(),
            custody="sealed",
            timeout_s=120.0,
            deadline_s=600.0,
        )

    @contextlib.asynccontextmanager
    async def relayer(self) -> AsyncIterator[Process]:
        """A relayer on this database."""
        async with relayer_in(self.folder) as process:
            yield process

    @contextlib.asynccontextmanager
    async def replica(self, *options: str) -> AsyncIterator[Process]:
        """One more relayer of the same key on this database, with a folder of its own."""
        folder, login = self.folder / "replica", self.storage.connect_args
        folder.mkdir(mode=0o700, exist_ok=True)
        place = urlencode({"host": login["host"], "port": login["port"], "sslmode": "disable"})
        url = f"postgresql://{login['user']}:{login['password']}@/{login['database']}?{place}"
        same = ["--database-url", url, "--key-file", str(self.folder / "relayer.key")]
        arguments = ["relayer", "serve", "--data-dir", str(folder), "--port", "0", *same]
        async with listening([*arguments, *options], folder) as process:
            yield process


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A new site, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-") as name:
        folder = Path(name)
        settings = settings_in(folder)
        embedder = BuiltinEmbedder(folder=MODEL_FOLDER)
        try:
            async with open_storage(settings) as storage:
                yield Site(folder, storage, embedder)
        finally:
            await embedder.close()


def settings_in(folder: Path) -> Settings:
    """The settings of whatever runs on this data folder."""
    return Settings(
        data_dir=folder, model_dir=str(MODEL_FOLDER), rate_limit="off", log_level="info"
    )


@contextlib.asynccontextmanager
async def relayer_in(folder: Path) -> AsyncIterator[Process]:
    """A relayer of this data folder."""
    arguments = ["relayer", "serve", "--data-dir", str(folder), "--port", "0"]
    async with listening(arguments, folder) as process:
        yield process


@contextlib.asynccontextmanager
async def listening(
    arguments: list[str], folder: Path, *, python: str = sys.executable
) -> AsyncIterator[Process]:
    """A module run as a program that prints `ready at URL`, ended at the end.

    Raises:
        RuntimeError: it did not start; the message is what it logged last.
    """
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("RELAYER_", "OPENAI_"))}
    ours |= {"RELAYER_MODEL_DIR": str(MODEL_FOLDER), "RELAYER_RATE_LIMIT": "off"}
    log = folder / f"{arguments[0]}.log"
    began = time.perf_counter()
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            *arguments,
            env=ours,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S_MAX)
        found = re.search(rb"ready at (\S+)", line)
        if found is None:
            raise RuntimeError(f"{arguments[0]} did not start: {_last_words(log)}")
        yield Process(found[1].decode(), process.pid, time.perf_counter() - began)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


def _last_words(log: Path) -> str:
    return log.read_text()[-2000:]
